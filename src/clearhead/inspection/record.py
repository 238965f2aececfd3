"""A model in, a tape of every head's attention weights out; no flag in any signature, nothing changed afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from clearhead.inspection.tokens import Token, tokens_of
from clearhead.models.translator import Translator
from clearhead.nn.attention import Attention
from clearhead.nn.cache import Seats
from clearhead.nn.kernels import Exact
from clearhead.text.specials import BOS_ID, EOS_ID
from clearhead.text.tokenizer import TokenizerPair

SIDES: dict[str, tuple[str, str]] = {
    "encoder": ("source", "source"),
    "decoder": ("target", "read"),
    "cross": ("target", "source"),
}
"""For each kind of attention, the tokens that look and the tokens that are looked at."""


class Look(NamedTuple):
    """What the heads of one layer looked at in one pass."""

    kind: str
    """`encoder`, `decoder` or `cross`: who looked at whom."""
    layer: int
    weights: Float[Tensor, "batch heads query key"]
    """Of each row that the model was given: in a search, of each hypothesis under way."""
    allowed: Bool[Tensor, "#batch #heads #query key"] | None = None
    """What might have been looked at; None is everything."""
    heads: tuple[int, ...] = ()
    """The numbers of the heads: those that were pruned are missing."""


@dataclass
class Tape:
    """All looks since recording began, in the order they happened."""

    looks: list[Look] = field(default_factory=list)
    tokens: dict[str, list[Token]] = field(default_factory=dict)
    """The tokens that the looks are about, where they are known: `source`, `target` (what the decoder wrote at each
    step) and `read` (what it had read by then)."""

    def of(self, kind: str) -> list[Look]:
        """The looks of one kind, layer by layer."""
        return sorted((look for look in self.looks if look.kind == kind), key=lambda look: look.layer)

    @property
    def kinds(self) -> list[str]:
        """The kinds of looks there are, in the order of SIDES, then of appearance."""
        heard = dict.fromkeys(look.kind for look in self.looks)
        return [*(kind for kind in SIDES if kind in heard), *(kind for kind in heard if kind not in SIDES)]


@contextmanager
def recording(model: nn.Module, tokens: Mapping[str, Sequence[Token]] | None = None) -> Iterator[Tape]:
    """Collect the weights of every attention layer of a model; within, the kernel is the exact one."""
    tape = Tape(tokens={name: list(row) for name, row in (tokens or {}).items()})
    layers = {path: module for path, module in model.named_modules() if isinstance(module, Attention)}
    kernels = {path: module.kernel for path, module in layers.items()}
    with ExitStack() as ears:
        try:
            for path, module in layers.items():
                listener = _Listener(tape, path, module.heads)
                module.kernel = listener.kernel
                ears.callback(module.register_forward_pre_hook(listener.sit, with_kwargs=True).remove)
            yield tape
        finally:
            for path, module in layers.items():
                module.kernel = kernels[path]


class _Listener:
    """What stands in for the kernel of one attention layer while it is recorded."""

    def __init__(self, tape: Tape, path: str, heads: tuple[int, ...]) -> None:
        self.tape, self.heads = tape, heads
        self.kind, self.layer = kind_and_layer(path)
        self.seats: Seats | None = None
        self.kernel = Exact()
        self.kernel.softmax.register_forward_hook(self.hear)

    def sit(self, module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Note who sits where: the hypotheses of a search look at what they share as if they were one query."""
        self.seats = options.get("seats")

    def hear(self, module: nn.Module, inputs: tuple[Tensor, Tensor | None], weights: Tensor) -> None:
        """Put the weights on the tape, a row for each that the model was given."""
        weights, allowed = weights.detach(), inputs[1]
        if self.seats is not None:
            weights = self.seats.apart(weights)
            allowed = None if allowed is None else allowed.index_select(0, self.seats.memory)
        self.tape.looks.append(Look(self.kind, self.layer, weights, allowed, self.heads))


def kind_and_layer(path: str) -> tuple[str, int]:
    """What a module path says of an attention layer; one outside any stack is plain `attention`, in layer 0.

    >>> kind_and_layer("decoder.blocks.3.cross"), kind_and_layer("encoder.blocks.0.attention")
    (('cross', 3), ('encoder', 0))
    >>> kind_and_layer("blocks.1.attention"), kind_and_layer("")
    (('attention', 1), ('attention', 0))
    """
    stack, blocks, rest = path.rpartition("blocks.")
    layer, _, part = rest.partition(".")
    kind = "cross" if part == "cross" else stack.rstrip(".").rpartition(".")[-1]
    return (kind or "attention", int(layer)) if blocks else ("attention", 0)


class Forced(NamedTuple):
    """A pair that a model was led through, and what it thought at each step."""

    tape: Tape
    written: list[int]
    """The id that was to be written at each step, </s> included if the target was to end."""
    log_probs: Float[Tensor, "target vocab"]
    """The model's own log-probability of every token at each step."""

    @property
    def loss(self) -> float:
        """The mean negative log-probability of what was to be written."""
        right = self.log_probs.gather(1, torch.tensor(self.written, device=self.log_probs.device)[:, None])
        return -float(right.double().mean())


@torch.no_grad()
def teacher_forced(
    model: Translator,
    tokenizers: TokenizerPair,
    source: Sequence[int],
    target: Sequence[int],
    *,
    ends: bool = True,
) -> Forced:
    """Lead a translator through a source and a target, both as ids without control tokens, and record it.

    `ends` says whether the target is complete; one that was cut has no </s>. The weights are those of the steps of
    generation, because what a decoder sees of the past does not depend on how it came there.
    """
    written = [*target, EOS_ID] if ends else list(target)
    read = [BOS_ID, *target][: len(written)]
    sides = {"source": [*source, EOS_ID], "target": written, "read": read}
    made_by = {"source": tokenizers.source, "target": tokenizers.target, "read": tokenizers.target}
    tokens = {name: tokens_of(made_by[name], ids) for name, ids in sides.items()}
    was_training = model.training
    try:
        with recording(model.eval(), tokens) as tape:
            logits = model(_row(model, sides["source"]), _row(model, read))[0]
    finally:
        model.train(was_training)
    return Forced(tape, written, logits.float().log_softmax(-1))


def _row(model: Translator, ids: Sequence[int]) -> Int[Tensor, "1 time"]:
    return torch.tensor([ids], dtype=torch.long, device=model.output.weight.device)
