"""A Hugging Face directory in, its settings and tensors out; weights are read from safetensors, never unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.checkpoint import PICKLES, read_tensors
from clearhead.errors import DataError, MissingInputError
from clearhead.storage import read_json

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Downloaded:
    """What somebody else's directory holds."""

    path: Path
    config: dict[str, Any]
    generation: dict[str, Any]
    """How its makers search, if they say so."""
    tensors: Mapping[str, Tensor]

    def setting(self, name: str, default: Any) -> Any:
        """A setting, or what its family takes where it is not written down."""
        value = self.config.get(name)
        return default if value is None else value

    def tensor(self, *names: str) -> Tensor:
        """The first of these tensors that there is: tied ones are stored under one of several names."""
        for name in names:
            if name in self.tensors:
                return self.tensors[name].float()
        raise DataError(f"{self.path} has no tensor {names[0]}: it is not complete, or another kind of model")


def read_downloaded(path: Path) -> Downloaded:
    """Read a directory, or say what it lacks."""
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
        raise DataError(
            f"{path} has its weights only as a pickle ({pickles[0]}), which can run code when read: if you trust it, "
            f"convert it once with `{conversion(path)}`"
        )
    raise MissingInputError(f"{path} has no {WEIGHTS}")


def conversion(path: Path) -> str:
    """The command that writes a model's weights as safetensors."""
    kind = "AutoModelForSeq2SeqLM" if (path / "source.spm").is_file() else "AutoModel"
    return f"python -c \"from transformers import {kind} as A; A.from_pretrained('{path}').save_pretrained('{path}')\""
