"""A Hugging Face directory in, its settings and tensors out; weights are read from safetensors, never unpickled."""

from __future__ import annotations

import re
import reprlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from clearhead.checkpoint import PICKLES, read_tensors
from clearhead.errors import DataError, MissingInputError
from clearhead.export.names import FEED_FORWARDS
from clearhead.storage import read_json

CONFIG = "config.json"
SEARCH = "generation_config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
NO_WEIGHTS = re.compile(r"(^|\.)(position_ids|attn\.(masked_)?bias)$")
"""Tensors that older files hold, and that follow from the shape of the model."""
KINDS: dict[type, str] = {
    bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list", dict: "an object"
}  # fmt: skip
"""What a setting may be, and how it is said."""
Value = TypeVar("Value")


@dataclass(frozen=True)
class Settings:
    """What a JSON file of somebody else's says, and which file that is."""

    path: Path
    tree: Mapping[str, Any]

    def get(self, name: str, default: Value) -> Value:
        """A setting, which must be of the kind of its default, or that where it is not written down."""
        value = self.tree.get(name)
        if value is None:
            return default
        if not is_a(type(default), value):
            raise self.unfit(name, f"should be {KINDS[type(default)]}")
        return float(value) if isinstance(default, float) else value  # type: ignore[return-value]

    def within(self, name: str) -> Settings:
        """The settings that stand together under a name; none where it is not written down."""
        return Settings(self.path, self.get(name, {}))

    def unfit(self, name: str, reason: str) -> DataError:
        """What to say of a setting that cannot be."""
        return DataError(f"{self.path}: {name} = {reprlib.repr(self.tree.get(name))} {reason}")


def is_a(kind: type, value: Any) -> bool:
    """Whether what stands in a JSON file is of a kind; a whole number is a number too, and what has no end is none.

    >>> is_a(float, 3), is_a(int, True), is_a(float, float("nan")), is_a(list, "abc")
    (True, False, False, False)
    """
    if kind is float:
        return type(value) in (int, float) and abs(value) <= sys.float_info.max
    return type(value) is kind


def read_settings(path: Path) -> Settings:
    """Read a file of settings, which need not be there."""
    return Settings(path, read_json(path) if path.is_file() else {})


@dataclass(frozen=True)
class Downloaded:
    """What somebody else's directory holds."""

    path: Path
    config: dict[str, Any]
    search: Settings
    """How its makers search, if they say so in a file of its own."""
    tensors: Mapping[str, Tensor]
    asked: set[str] = field(default_factory=set)
    """The tensors that were asked for so far."""

    @property
    def settings(self) -> Settings:
        """Its config.json."""
        return Settings(self.path / CONFIG, self.config)

    def setting(self, name: str, default: Value) -> Value:
        """A setting, or what its family takes where it is not written down."""
        return self.settings.get(name, default)

    def searching(self, name: str, default: Value) -> Value:
        """A setting of how its makers search; older directories say so in their config.json."""
        return (self.search if name in self.search.tree else self.settings).get(name, default)

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
    if not (path / CONFIG).is_file():
        raise MissingInputError(f"{path} is not a Hugging Face model: it has no {CONFIG}")
    return Downloaded(path, read_json(path / CONFIG), read_settings(path / SEARCH), _tensors(path))


def _tensors(path: Path) -> dict[str, Tensor]:
    if (path / WEIGHTS).is_file():
        return read_tensors(path / WEIGHTS)
    if (path / INDEX).is_file():
        places = read_settings(path / INDEX).within("weight_map").tree
        parts = sorted({str(name) for name in places.values()})
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
    way = f"convert it once with transformers, into a directory with its {CONFIG}"
    if (path / CONFIG).is_file():
        way = f"convert it once with `{conversion(path)}`"
    return DataError(
        f"{path} has its weights only as a pickle ({pickle}), which can run code when read: if you trust it, {way}"
    )


def conversion(path: Path) -> str:
    """The command that writes a model's weights as safetensors, its heads among them."""
    names = read_json(path / CONFIG).get("architectures")
    kind = names[0] if isinstance(names, list) and names and str(names[0]).isidentifier() else "AutoModel"
    return f"python -c \"from transformers import {kind} as A; A.from_pretrained('{path}').save_pretrained('{path}')\""
