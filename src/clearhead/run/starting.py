"""A model to start from in, its tokenizers and as many of its weights as fit out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.checkpoint import StoredModel, load_model, locate, named_tensors
from clearhead.errors import ConfigError
from clearhead.models import Model
from clearhead.models.bert import SEGMENTS
from clearhead.models.encoder import EncoderConfig
from clearhead.nn.embedding import TokenEmbedding
from clearhead.nn.stacks import Stack
from clearhead.run.settings import RunConfig
from clearhead.storage import read_json

SHOWN = 4
"""How many names of new tensors are told."""


def read_start(config: RunConfig) -> StoredModel | None:
    """The model that a run is to start from, if there is one."""
    return None if config.init is None else load_model(Path(config.init))


def shape_at_start(path: str) -> dict[str, Any]:
    """The sizes of the encoder that a classifier is to start from, by the names of its own settings."""
    stored = read_json(locate(Path(path))[0] / "config.json")
    names = EncoderConfig.model_fields.keys() - {"vocab_size", "dropout", "attention_dropout", "kernel"}
    found = {
        name: stored[name] for name in EncoderConfig.model_fields if name in names and stored.get(name) is not None
    }
    segments = stored.get("num_segments") or (SEGMENTS if stored.get("next_sentence") else 0)
    return {**found, "num_segments": segments} if segments else found


def take_weights(model: Model, start: StoredModel) -> str:
    """Copy every tensor of the same name and shape; what was taken comes back, in one line.

    All that reads the input must be there, its embedding and its first stack: with these wrong, nothing is gained.
    """
    ours, theirs = named_tensors(model), _offered(model, start)
    fitting = [name for name in ours if name in theirs and theirs[name].shape == ours[name].shape]
    # What makes tokens fewer may be new: it is learnt on top of what was learnt without it.
    needed = [name for name in ours if name.startswith(_readers(model)) and ".reduction." not in name]
    for name in needed or list(ours)[: not fitting]:
        if name not in fitting:
            why = _difference(name, ours[name], theirs)
            raise ConfigError(f"cannot start a {model.config.kind} from {start.path}, which is a {start.kind}: {why}")
    with torch.no_grad():
        for name in fitting:
            ours[name].copy_(theirs[name])
    new = [name for name in ours if name not in fitting]
    more = ", …" if len(new) > SHOWN else ""
    rest = f"; new: {', '.join(new[:SHOWN])}{more}" if new else ""
    return f"started from {start.path}, a {start.kind}: {len(fitting)} of {len(ours)} tensors taken{rest}"


def _offered(model: Model, start: StoredModel) -> dict[str, Tensor]:
    """What may be taken: where somebody has said at which threshold to begin, not the thresholds that were learnt."""
    reduce = getattr(model.config, "reduce", None)
    is_said = reduce is not None and reduce.threshold is not None
    tensors = named_tensors(start.model)
    return {name: x for name, x in tensors.items() if not (is_said and name.endswith(".reduction.threshold"))}


def _readers(model: Model) -> tuple[str, ...]:
    """Where the names of the tensors begin that read the input: the first embedding of tokens and the first stack."""
    paths = []
    for part in (TokenEmbedding, Stack):
        paths += [f"{path}." for path, module in model.named_modules() if isinstance(module, part)][:1]
    return tuple(paths)


def _difference(name: str, ours: Tensor, theirs: Mapping[str, Tensor]) -> str:
    if name not in theirs:
        return f"it has no {name}"
    here, there = ("x".join(map(str, tensor.shape)) for tensor in (ours, theirs[name]))
    return f"{name} is {there} there and {here} here; give [model] the sizes that it has there"
