"""A model and its tokenizers ↔ a model directory, checked before anything of it is used.

Load once, safely: sums, schema, tensors, shapes. Tensors are safetensors, the rest is JSON or TOML; nothing is ever
pickled, and class names come from our tables, never from a file.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.checkpoint.formats import restored, stored_as
from clearhead.checkpoint.tensors import model_tensors, read_tensors, restore_model, write_tensors
from clearhead.config import build
from clearhead.errors import DataError, MissingInputError, StorageError, choose
from clearhead.models import MODELS, Model, ModelConfig
from clearhead.storage import (
    SUMS,
    check_listed,
    read_json,
    verify,
    write_directory,
    write_json,
    write_sums,
)
from clearhead.text.tokenizer import TokenizerPair

FORMAT_VERSION = 1
UNDER_WAY = "under-way"
"""The file that a run directory has while it is trained in, and after that if it came to no end."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


@dataclass(frozen=True)
class StoredModel:
    """What a model directory holds."""

    model: Model
    tokenizers: TokenizerPair | None
    """One of both sides where there is only one; None where no text is read."""
    generation: dict[str, Any] | None
    """None where no text is written."""
    path: Path

    @property
    def kind(self) -> str:
        """The model's name in MODELS."""
        return self.model.config.kind


def save_model(
    directory: Path,
    model: Model,
    tokenizers: TokenizerPair | None,
    *,
    generation: Mapping[str, Any] | None,
    card: str,
    training_config: str,
    tensors: Mapping[str, Tensor] | None = None,
    dtype: str = "float32",
    replace: bool = False,
) -> None:
    """Write a model directory that loads everywhere; float16 halves its size, int8 quarters it.

    `tensors` are its weights where the model itself has only a part. Without `replace`, what has its name stays.
    """
    weights = stored_as(model_tensors(model) if tensors is None else tensors, dtype)

    def fill(draft: Path) -> None:
        describe_model(draft, model.config, tokenizers, generation, dtype)
        write_tensors(draft / "model.safetensors", weights)
        (draft / "README.md").write_text(card, encoding="utf-8")
        (draft / "training_config.toml").write_text(training_config, encoding="utf-8")

    write_directory(directory, fill, replace=replace)


def rewrite_card(directory: Path, card: str) -> None:
    """Give a model directory another README.md and leave the rest as it is, its sums included."""
    _verified(directory, "model.safetensors")

    def fill(draft: Path) -> None:
        for path in directory.iterdir():
            if path.name not in (SUMS, "README.md"):
                shutil.copy(path, draft)
        (draft / "README.md").write_text(card, encoding="utf-8")

    write_directory(directory, fill, replace=True)


def describe_model(
    directory: Path,
    config: ModelConfig,
    tokenizers: TokenizerPair | None,
    generation: Mapping[str, Any] | None,
    dtype: str = "float32",
) -> None:
    """Write what is known of a model apart from its weights."""
    tree = {"format_version": FORMAT_VERSION, "dtype": dtype, **config.model_dump()}
    write_json(directory / "config.json", tree)
    if generation is not None:
        write_json(directory / "generation_config.json", generation)
    if tokenizers is not None:
        tokenizers.save(directory)


def seal_description(run: Path) -> None:
    """Write the sums of what `describe_model` wrote into a run directory."""
    write_sums(run, [run / "config.json", *run.glob("generation_config.json"), *run.glob("*tokenizer*.json")])


def verify_description(run: Path) -> None:
    """Check what `seal_description` has sealed."""
    if (run / SUMS).is_file():
        _verified(run)


def _verified(directory: Path, *needed: str) -> None:
    """Check a directory that describes a model: nothing in it may be damaged, and what its kind needs must be there."""
    listed = verify(directory, "config.json", *needed)
    kind, _ = _description(directory)
    text = ("tokenizer.json", "tokenizer_config.json") if kind.reads_text else ()
    check_listed(directory, listed, (*(("generation_config.json",) if kind.generates else ()), *text))


def _description(directory: Path) -> tuple[type[Model], dict[str, Any]]:
    """Which kind of model a directory describes, and the rest of what its config.json says."""
    tree = read_json(directory / "config.json")
    version = tree.pop("format_version", None)
    if version != FORMAT_VERSION:
        raise StorageError(f"{directory} has format {version}, this is format {FORMAT_VERSION}: use a matching version")
    return choose(MODELS, str(tree.get("kind")), "model"), tree


def described_model(directory: Path) -> ModelConfig:
    """The shape of the model that a model or run directory describes."""
    kind, tree = _description(directory)
    tree.pop("dtype", None)
    return build(kind.Config, tree, str(directory / "config.json"))


def load_model(path: Path) -> StoredModel:
    """Read a model directory, or the best model of a run directory."""
    described, weights = locate(path)
    if described == weights:
        _verified(weights, "model.safetensors")
    else:
        verify(weights, "model.safetensors")
        verify_description(described)
    kind, tree = _description(described)
    dtype = str(tree.get("dtype", "float32"))
    model = kind(described_model(described))
    file = weights / "model.safetensors"
    restore_model(model, restored(read_tensors(file), dtype, file), file)
    generation = read_json(described / "generation_config.json") if kind.generates else None
    tokenizers = TokenizerPair.load(described) if kind.reads_text else None
    return StoredModel(model.eval(), tokenizers, generation, path)


def locate(path: Path) -> tuple[Path, Path]:
    """Where a model is described and where its weights are, for a model, run or checkpoint directory."""
    if not path.exists():
        raise MissingInputError(f"there is no model at {path}")
    if path.is_file() and path.suffix in PICKLES:
        raise DataError(f"{path} looks like a pickle, which can run code when read: convert it to safetensors first")
    if (path / "model.safetensors").is_file() and (path / "config.json").is_file():
        return path, path
    # A run that goes on has better weights than those of its last end.
    if (path / "model").is_dir() and not ((path / UNDER_WAY).exists() and (path / "checkpoints" / "best").exists()):
        return path / "model", path / "model"
    for link in ("best", "last"):
        if (path / "checkpoints" / link).exists():
            return path, (path / "checkpoints" / link).resolve()
    if path.parent.name == "checkpoints" and (path / "model.safetensors").is_file():
        return path.parent.parent, path.resolve()
    raise MissingInputError(f"{path} is neither a model directory nor a run directory with a checkpoint")
