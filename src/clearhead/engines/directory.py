"""An exported directory in, what it holds out: which engine it is for, how to tokenise, how to search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from clearhead.config import Record, build
from clearhead.errors import MissingInputError, StorageError, choose
from clearhead.generate.settings import GenerationConfig
from clearhead.storage import check_listed, read_json, verify, write_json
from clearhead.text.tokenizer import TokenizerPair

EXPORT = "export.json"
FORMAT_VERSION = 1
GENERATION = "generation_config.json"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
FILES: dict[str, tuple[str, ...]] = {
    "translator": (GENERATION, *TOKENIZER),
    "gpt": (GENERATION, *TOKENIZER),
    "classifier": TOKENIZER,
    "bert": TOKENIZER,
    "vit": (),
}
"""What must be there besides the model, by its kind."""


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
    """How to search; of no meaning for models that write nothing."""


def is_exported(path: Path) -> bool:
    """Whether a directory is an export, and not a model or run directory."""
    return (path / EXPORT).is_file()


def read_exported(path: Path, *, sealed: bool = True) -> Exported:
    """Read and check what is known of an exported model; one that is not `sealed` has no sums yet."""
    if not path.is_dir():
        raise MissingInputError(f"there is no model at {path}")
    if not is_exported(path):
        raise MissingInputError(f"{path} is not an exported model: it has no {EXPORT}")
    listed = verify(path, EXPORT) if sealed else None
    tree = read_json(path / EXPORT)
    if tree.get("format_version") != FORMAT_VERSION:
        raise StorageError(
            f"{path} has format {tree.get('format_version')}, this is format {FORMAT_VERSION}: export it again"
        )
    notes = build(ExportNotes, tree, str(path / EXPORT))
    files = choose(FILES, notes.kind, "kind of model")
    if listed is not None:
        check_listed(path, listed, files)
    generation = read_json(path / GENERATION) if GENERATION in files else {}
    return Exported(path=path, notes=notes, generation=build(GenerationConfig, generation, str(path / GENERATION)))


def describe_export(
    directory: Path, notes: ExportNotes, tokenizers: TokenizerPair | None, generation: dict[str, Any] | None
) -> None:
    """Write what `read_exported` reads, and the tokenizers."""
    write_json(directory / EXPORT, notes.model_dump())
    if generation is not None:
        write_json(directory / GENERATION, generation)
    if tokenizers is not None:
        tokenizers.save(directory)
