"""An exported directory in, what it holds out: which engine it is for, how to tokenise, how to search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from clearhead.config import Record, build
from clearhead.errors import MissingInputError, StorageError
from clearhead.generate.settings import GenerationConfig
from clearhead.storage import read_json, verify, write_json
from clearhead.text.tokenizer import TokenizerPair

EXPORT = "export.json"
FORMAT_VERSION = 1


class ExportNotes(Record):
    """What is written about an export, beside the model itself."""

    format_version: int = FORMAT_VERSION
    """Of this file and of the names of the others."""
    engine: str
    """What runs it."""
    kind: str
    """Which kind of model it is."""
    quantize: str | None = None
    """How its weights were made smaller."""
    max_len: int = Field(ge=2)
    """The longest sequence, in tokens, that the model is made for."""
    model: dict[str, Any]
    """The shape of the original."""
    made_by: str
    """The program and its version."""


class Exported(Record):
    """What an exported directory holds besides the model."""

    path: Path
    notes: ExportNotes
    generation: GenerationConfig


def is_exported(path: Path) -> bool:
    """Whether a directory is an export, and not a model or run directory."""
    return (path / EXPORT).is_file()


def read_exported(path: Path, *, sealed: bool = True) -> Exported:
    """Read and check what is known of an exported model; one that is not `sealed` has no sums yet."""
    if not path.is_dir():
        raise MissingInputError(f"there is no model at {path}")
    if not is_exported(path):
        raise MissingInputError(f"{path} is not an exported model: it has no {EXPORT}")
    if sealed:
        verify(path, EXPORT, "generation_config.json", "tokenizer.json", "tokenizer_config.json")
    tree = read_json(path / EXPORT)
    if tree.get("format_version") != FORMAT_VERSION:
        raise StorageError(
            f"{path} has format {tree.get('format_version')}, this is format {FORMAT_VERSION}: export it again"
        )
    notes = build(ExportNotes, tree, str(path / EXPORT))
    generation = read_json(path / "generation_config.json")
    return Exported(
        path=path,
        notes=notes,
        generation=build(GenerationConfig, generation, str(path / "generation_config.json")),
    )


def describe_export(directory: Path, notes: ExportNotes, tokenizers: TokenizerPair, generation: dict[str, Any]) -> None:
    """Write what `read_exported` reads, and the tokenizers."""
    write_json(directory / EXPORT, notes.model_dump())
    write_json(directory / "generation_config.json", generation)
    tokenizers.save(directory)
