"""A Hugging Face directory in, its settings and tensors out; weights are read from safetensors, never unpickled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.checkpoint import PICKLES, read_tensors
from clearhead.errors import DataError, MissingInputError
from clearhead.export.names import FEED_FORWARDS
from clearhead.storage import read_json

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
NO_WEIGHTS = re.compile(r"(^|\.)(position_ids|attn\.(masked_)?bias)$")
"""Tensors that older files hold, and that follow from the shape of the model."""


@dataclass(frozen=True)
class Downloaded:
    """What somebody else's directory holds."""

    path: Path
    config: dict[str, Any]
    generation: dict[str, Any]
    """How its makers search, if they say so."""
    tensors: Mapping[str, Tensor]
    asked: set[str] = field(default_factory=set)
    """The tensors that were asked for so far."""

    def setting(self, name: str, default: Any) -> Any:
        """A setting, or what its family takes where it is not written down."""
        value = self.config.get(name)
        return default if value is None else value

    def tensor(self, *names: str) -> Tensor:
        """The first of these tensors that there is: tied ones are stored under one of several names."""
        self.asked.update(names)
        for name in names:
            if name in self.tensors:
                return self.tensors[name].float()
        raise DataError(f"{self.path} has no tensor {names[0]}: it is not complete, or another kind of model")

    def has(self, *names: str) -> bool:
        """Whether there is one of these tensors."""
        return any(name in self.tensors for name in names)

    def feedforward(self, name: str, default: str) -> str:
        """Our name for the bend of its feed-forwards, which stands in this setting."""
        theirs = self.setting(name, default)
        if theirs not in FEED_FORWARDS:
            raise DataError(f"{self.path}: its activation '{theirs}' is none of {', '.join(FEED_FORWARDS)}")
        return FEED_FORWARDS[theirs]

    def refuse(self, settings: Mapping[str, Any]) -> None:
        """Refuse a model with a setting that is not the one that ours can have."""
        for name, usual in settings.items():
            if (value := self.setting(name, usual)) != usual:
                raise DataError(f"{self.path}: {name} = {value!r} is nothing that our model can have, only {usual!r}")

    @property
    def architecture(self) -> str:
        """The class of transformers that it was saved by, if that is known."""
        names = self.config.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else ""

    @property
    def left_out(self) -> list[str]:
        """The tensors that nobody asked for."""
        return sorted(name for name in self.tensors.keys() - self.asked if not NO_WEIGHTS.search(name))


def read_downloaded(path: Path) -> Downloaded:
    """Read a directory, or say what it lacks."""
    if path.is_file() and path.suffix in PICKLES:
        raise _refusal(path.parent, path.name)
    if not path.is_dir():
        raise MissingInputError(f"there is no directory {path}")
    if not (path / "config.json").is_file():
        raise MissingInputError(f"{path} is not a Hugging Face model: it has no config.json")
    config = read_json(path / "config.json")
    search = path / "generation_config.json"
    generation = {**config, **(read_json(search) if search.is_file() else {})}
    return Downloaded(path, config, generation, _tensors(path))


def _tensors(path: Path) -> dict[str, Tensor]:
    if (path / WEIGHTS).is_file():
        return read_tensors(path / WEIGHTS)
    if (path / INDEX).is_file():
        parts = sorted({str(name) for name in read_json(path / INDEX).get("weight_map", {}).values()})
        if any(Path(part).name != part for part in parts):
            raise DataError(f"{path / INDEX} names files outside its directory")
        return {name: tensor for part in parts for name, tensor in read_tensors(path / part).items()}
    pickles = sorted(file.name for file in path.iterdir() if file.suffix in PICKLES)
    if pickles:
        raise _refusal(path, pickles[0])
    raise MissingInputError(f"{path} has no {WEIGHTS}")


def _refusal(path: Path, pickle: str) -> DataError:
    """Why a pickle in a directory is not read, and what to do instead."""
    if (path / WEIGHTS).is_file():
        return DataError(
            f"{path / pickle} is a pickle, which can run code when read: import {path}, which has {WEIGHTS}"
        )
    way = "convert it once with transformers, into a directory with its config.json"
    if (path / "config.json").is_file():
        way = f"convert it once with `{conversion(path)}`"
    return DataError(
        f"{path} has its weights only as a pickle ({pickle}), which can run code when read: if you trust it, {way}"
    )


def conversion(path: Path) -> str:
    """The command that writes a model's weights as safetensors, its heads among them."""
    names = read_json(path / "config.json").get("architectures")
    kind = names[0] if isinstance(names, list) and names and str(names[0]).isidentifier() else "AutoModel"
    return f"python -c \"from transformers import {kind} as A; A.from_pretrained('{path}').save_pretrained('{path}')\""
