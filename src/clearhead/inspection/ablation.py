"""A model and names of heads or layers in, the same model without them out: for a while (`ablated`) or for good.

A head that is off contributes zero to what its attention gives out; the output projection's bias stays. A layer that
is off hands on what it was given. The names are those of `names.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.inspection.names import Head, all_heads, attentions, heads_at, meant, named_heads
from clearhead.models.model import Model
from clearhead.nn.attention import Attention
from clearhead.nn.stacks import Block, Stack
from clearhead.nn.tokens import Tokens


@contextmanager
def ablated(model: nn.Module, *names: str) -> Iterator[frozenset[Head]]:
    """Switch heads or whole layers off by name for the length of a `with` block; the heads that are off come back."""
    # A layer's name is also short for the heads of its self-attention; here it means all of the layer.
    parts: dict[str, Block | list[Head]] = {**named_heads(all_heads(model)), **named_layers(model)}
    wanted = [meant(parts, name) for name in names]
    blocks = [part for part in wanted if isinstance(part, Block)]
    off = {head for part in wanted if not isinstance(part, Block) for head in part}
    with ExitStack() as hooks:
        for block in blocks:
            hooks.callback(block.register_forward_hook(_hand_on).remove)
        for path, attention in attentions(model).items():
            silent = [place for place, head in enumerate(heads_at(path, attention)) if head in off]
            if silent:
                muted = partial(_mute, silent, attention.head_dim)
                hooks.callback(attention.output.register_forward_pre_hook(muted).remove)
        yield frozenset(off | {head for block in blocks for head in _heads_in(model, block)})


def _hand_on(module: nn.Module, inputs: tuple[Any, ...], output: Tokens) -> Tokens:
    return inputs[0]


def _mute(places: list[int], head_dim: int, module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    heads = inputs[0].unflatten(-1, (-1, head_dim))
    off = torch.tensor(places, device=heads.device)
    return (heads.index_fill(-2, off, 0.0).flatten(-2),)


def named_layers(model: nn.Module) -> dict[str, Block]:
    """The layers of every stack of a model, by name."""
    found: dict[str, Block] = {}
    for path, stack in model.named_modules():
        if isinstance(stack, Stack):
            name = path.rpartition(".")[-1] or "attention"
            found |= {f"{name}.{layer}": block for layer, block in enumerate(stack.blocks) if isinstance(block, Block)}
    return found


def _heads_in(model: nn.Module, block: Block) -> Iterable[Head]:
    own = [id(block.attention), id(block.cross)]
    return (head for path, module in attentions(model).items() if id(module) in own for head in heads_at(path, module))


AModel = TypeVar("AModel", bound=Model)

FIELDS = {"encoder": "encoder_heads", "decoder": "decoder_heads", "cross": "cross_heads"}
"""Where a config says which heads of a kind there are."""


def prune_heads(model: AModel, names: Sequence[str]) -> AModel:
    """A smaller model without the heads of these names; it says what the ablated one says."""
    table = named_heads(all_heads(model))
    layers = named_layers(model)
    gone: set[Head] = set()
    for name in names:
        if name in layers:
            raise ConfigError(f"'{name}' is a whole layer: name heads, such as {name}.self.0, or {name}.self for all")
        gone |= set(meant(table, name))
    stuck = [head for head in gone if FIELDS.get(head.kind) not in type(model.config).model_fields]
    if stuck:
        raise ConfigError(f"{stuck[0].name} cannot be taken out: a {model.config.kind} has all its heads or none")
    encoder = getattr(model, "encoder", None)
    voting = [head for head in gone if head.kind == "encoder" and isinstance(encoder, Stack) and encoder.reduces]
    if voting:
        raise ConfigError(
            f"{voting[0].name} cannot be taken out while tokens become fewer (model.reduce): it has a say in which ones"
        )
    kept = {kind: _kept(model, kind, gone) for kind in FIELDS}
    config = model.config.model_copy(update={FIELDS[kind]: heads for kind, heads in kept.items() if heads is not None})
    smaller = type(model)(config).to(next(model.parameters()).device).train(model.training)
    weights = _cut(model, smaller)
    smaller.load_state_dict(weights, strict=True)
    return smaller


def _kept(model: Model, kind: str, gone: set[Head]) -> list[list[int]] | None:
    """Which heads of a kind are left in each layer; None if none was ever taken."""
    kept, is_pruned = [], False
    for path, attention in attentions(model).items():
        heads = heads_at(path, attention)
        if heads[0].kind == kind:
            left = [head for head in heads if head not in gone]
            if not left:
                raise ConfigError(f"{heads[0].attention} would lose all its heads: leave it at least one")
            _refuse_half_groups(attention, heads, gone)
            kept.append([head.number for head in left])
            is_pruned = is_pruned or not attention.is_whole or len(left) < len(heads)
    return kept if is_pruned else None


def _refuse_half_groups(attention: Attention, heads: list[Head], gone: set[Head]) -> None:
    size = attention.num_heads // attention.num_kv_heads
    for first in range(0, len(heads), size):
        group = heads[first : first + size]
        if gone & {*group} and not {*group} <= gone:
            names = ", ".join(head.name for head in group)
            raise ConfigError(f"{names} share their keys and values: prune all of them or none")


def _cut(model: Model, smaller: Model) -> dict[str, Tensor]:
    """The weights of a model, with only the rows and columns of heads that a smaller one has."""
    weights = dict(model.state_dict())
    fewer = attentions(smaller)
    for path, attention in attentions(model).items():
        width = attention.head_dim
        places = [attention.heads.index(number) for number in fewer[path].heads]
        size = attention.num_heads // attention.num_kv_heads
        shared = sorted({place // size for place in places})
        take: dict[str, Callable[[Tensor], Tensor]] = {
            "query": partial(_rows, places, width),
            "key": partial(_rows, shared, width),
            "value": partial(_rows, shared, width),
        }
        for part, cut in take.items():
            for kind in ("weight", "bias"):
                if (name := f"{path}.{part}.{kind}") in weights:
                    weights[name] = cut(weights[name])
        weights[f"{path}.output.weight"] = _rows(places, width, weights[f"{path}.output.weight"].T).T
    return weights


def _rows(places: list[int], width: int, x: Tensor) -> Tensor:
    """The rows of some heads, of a matrix or vector with `width` rows for each."""
    return x.unflatten(0, (-1, width))[places].flatten(0, 1)
