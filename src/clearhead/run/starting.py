"""A model to start from in, its tokenizers and as many of its weights as fit out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.checkpoint import StoredModel, load_model, locate, named_tensors
from clearhead.errors import ConfigError
from clearhead.models import Model
from clearhead.models.bert import SEGMENTS
from clearhead.models.encoder import EncoderConfig
from clearhead.models.model import ModelConfig
from clearhead.models.translator import TranslatorConfig
from clearhead.nn.embedding import TokenEmbedding
from clearhead.nn.stacks import Stack
from clearhead.run.settings import RunConfig
from clearhead.storage import read_json
from clearhead.training.sizing import Choice

SHOWN = 4
"""How many names of new tensors are told."""
NOT_SHAPE = {"kind", "dropout", "attention_dropout", "kernel", "start", "reduce"}
"""Settings of a model that may be others than those of the one it starts from."""
READING = ("num_heads", "norm", "decoder_norm", "residual", "feedforward", "positions", "scale_embeddings")
"""Settings that say how weights are read and that no shape of a tensor shows."""


def read_start(config: RunConfig) -> StoredModel | None:
    """The model that a run is to start from, if there is one."""
    return None if config.init is None else load_model(Path(config.init))


def encoder_at_start(path: str) -> dict[str, Any]:
    """The sizes of the encoder that a classifier is to start from, by the names of its own settings."""
    stored = _stored(path)
    segments = stored.get("num_segments") or (SEGMENTS if stored.get("next_sentence") else 0)
    return {**_shape(stored, EncoderConfig), "num_segments": segments} if segments else _shape(stored, EncoderConfig)


def translator_at_start(path: str) -> dict[str, Any]:
    """The sizes of the translator that another is to start from; none if it is no translator."""
    stored = _stored(path)
    return _shape(stored, TranslatorConfig) if stored.get("kind") == "translator" else {}


def with_shape_of(init: str | None, choices: list[Choice], shape: Callable[[str], dict[str, Any]]) -> list[Choice]:
    """Choices for a model that starts from another's weights: its sizes must be those of the other."""
    if init is None or not (there := shape(init)):
        return choices
    chosen = [choice for choice in choices if not choice.key.startswith(("model.", "tokenizer."))]
    return [*(Choice(f"model.{name}", value, f"as in {init}") for name, value in there.items()), *chosen]


def _stored(path: str) -> dict[str, Any]:
    return read_json(locate(Path(path))[0] / "config.json")


def _shape(stored: Mapping[str, Any], config: type[ModelConfig]) -> dict[str, Any]:
    names = [name for name in config.model_fields if name not in NOT_SHAPE and not name.endswith("vocab_size")]
    return {name: stored[name] for name in names if stored.get(name) is not None}


def take_weights(model: Model, start: StoredModel) -> str:
    """Copy every tensor of the same name and shape; what was taken comes back, in one line.

    All that reads the input must be there, its embedding and its first stack: with these wrong, nothing is gained.
    A feed-forward may be wider here than there, and the first stack higher where it starts still: what is more adds
    nothing at first.
    """
    _check_reading(model, start)
    ours, theirs = named_tensors(model), _offered(model, start)
    _check_ties(model, theirs, start)
    fitting = [name for name in ours if name in theirs and _fits(name, theirs[name], ours[name])]
    # What makes tokens fewer may be new: it is learnt on top of what was learnt without it.
    optional = (*_layers_that_add_nothing(model, theirs), ".reduction.")
    needed = [name for name in ours if name.startswith(_readers(model)) and not any(part in name for part in optional)]
    for name in needed or list(ours)[: not fitting]:
        if name not in fitting:
            why = _difference(name, ours[name], theirs)
            raise ConfigError(f"cannot start a {model.config.kind} from {start.path}, which is a {start.kind}: {why}")
    with torch.no_grad():
        for name in fitting:
            _take(name, theirs[name], ours[name])
    new = [name for name in ours if name not in fitting]
    more = ", …" if len(new) > SHOWN else ""
    rest = f"; new: {', '.join(new[:SHOWN])}{more}" if new else ""
    wider = sum(theirs[name].shape != ours[name].shape for name in fitting)
    grown = f", {wider} of which are wider here" if wider else ""
    return f"started from {start.path}, a {start.kind}: {len(fitting)} of {len(ours)} tensors taken{grown}{rest}"


def _fits(name: str, there: Tensor, here: Tensor) -> bool:
    """Whether one tensor can take the place of another, or of a part of it where a feed-forward has become wider."""
    if there.shape == here.shape:
        return True
    *_, owner, part, kind = ("", "", *name.split("."))
    if owner != "feedforward" or there.dim() != here.dim():
        return False
    wider = 1 if (part, kind) == ("outer", "weight") else 0
    return all(n < m if i == wider else n == m for i, (n, m) in enumerate(zip(there.shape, here.shape, strict=True)))


def _take(name: str, there: Tensor, here: Tensor) -> None:
    """Copy a tensor to where it fits; of features that are new nothing is read yet."""
    if there.shape != here.shape and name.endswith(".outer.weight"):
        here.zero_()
    here[tuple(slice(n) for n in there.shape)].copy_(there)


def _check_reading(model: Model, start: StoredModel) -> None:
    """Refuse a model that would take the weights for something else than they are."""
    for name in READING:
        here, there = (_reading(one.config, name) for one in (model, start.model))
        if None not in (here, there) and here != there:
            raise ConfigError(
                f"cannot start a {model.config.kind} from {start.path}, which is a {start.kind}: model.{name} is "
                f"{there} there and {here} here; give [model] what it has there"
            )


def _reading(config: ModelConfig, name: str) -> Any:
    value = getattr(config, name, None)
    return getattr(config, "norm", None) if value is None and name == "decoder_norm" else value


def _check_ties(model: Model, theirs: Mapping[str, Tensor], start: StoredModel) -> None:
    """Refuse a model in which one table would have to be two different ones."""
    tables: dict[Tensor, list[str]] = {}
    for name, table in model.named_parameters(remove_duplicate=False):
        if name in theirs:
            tables.setdefault(table, []).append(name)
    for first, *others in tables.values():
        for other in others:
            if not torch.equal(theirs[first], theirs[other]):
                raise ConfigError(
                    f"cannot start a {model.config.kind} from {start.path}, which is a {start.kind}: {first} and "
                    f"{other} are two tables there and one here; tie in [model] what is tied there"
                )


def _offered(model: Model, start: StoredModel) -> dict[str, Tensor]:
    """What may be taken, a tied table under each of its names.

    Where somebody has said at which threshold to begin, those that were learnt are left out.
    """
    reduce = getattr(model.config, "reduce", None)
    is_said = reduce is not None and reduce.threshold is not None
    tensors = {**named_tensors(start.model), **dict(start.model.named_parameters(remove_duplicate=False))}
    return {name: x for name, x in tensors.items() if not (is_said and name.endswith(".reduction.threshold"))}


def _readers(model: Model) -> tuple[str, ...]:
    """Where the names of the tensors begin that read the input: the first embedding of tokens and the first stack."""
    paths = []
    for part in (TokenEmbedding, Stack):
        paths += [f"{path}." for path, module in model.named_modules() if isinstance(module, part)][:1]
    return tuple(paths)


def _layers_that_add_nothing(model: Model, there: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Where the names of the first stack's layers begin that only this model has, if they are still at first."""
    if getattr(model.config, "start", None) != "still":
        return ()
    path, stack = next((path, module) for path, module in model.named_modules() if isinstance(module, Stack))
    layers = [f"{path}.blocks.{number}." for number in range(len(stack.blocks))]
    known = [any(name.startswith(layer) for name in there) for layer in layers]
    return tuple(layer for layer, is_known in zip(layers, known, strict=True) if any(known) and not is_known)


def _difference(name: str, ours: Tensor, theirs: Mapping[str, Tensor]) -> str:
    if name not in theirs:
        return f"it has no {name}"
    here, there = ("x".join(map(str, tensor.shape)) for tensor in (ours, theirs[name]))
    return f"{name} is {there} there and {here} here; give [model] the sizes that it has there"
