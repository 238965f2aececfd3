"""A tokenizer to and from its two files: `STEM.json`, as Hugging Face `tokenizers` write it, and `STEM_config.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers

from clearhead.errors import MissingInputError, StorageError, did_you_mean
from clearhead.text.kinds import IMPORTED, TOKENIZERS
from clearhead.text.specials import BOS, EOS, PAD, SPECIALS, UNK

FORMAT_VERSION = 1
Notes = dict[str, Any]


def write_engine(path: Path, engine: tokenizers.Tokenizer) -> None:
    """Write the trained pipeline."""
    _write(path, engine.to_str(pretty=True))


def write_notes(path: Path, kind: str, **more: bool) -> None:
    """Write the kind, and what readers of Hugging Face's format look for, which we ignore ourselves."""
    ours: Notes = {"format_version": FORMAT_VERSION, "kind": kind, **more}
    names = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD, "unk_token": UNK}
    theirs = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
    }
    _write(path, json.dumps({**ours, **names, **theirs}, indent=2))


def read_notes(path: Path) -> Notes:
    """Read and check the notes."""
    text = _read(path)
    try:
        notes = json.loads(text)
        version, kind = notes["format_version"], notes["kind"]
    except (ValueError, KeyError, TypeError):
        raise StorageError(f"{path} is damaged: it names no format_version and kind of tokenizer") from None
    if version != FORMAT_VERSION:
        raise StorageError(f"{path} has format_version {version!r}, this Clearhead reads {FORMAT_VERSION}: update it")
    if not isinstance(kind, str) or kind not in {**TOKENIZERS, **IMPORTED}:
        raise StorageError(f"{path}: unknown tokenizer kind {kind!r}, {did_you_mean(str(kind), TOKENIZERS)}")
    return dict(notes)


def read_engine(path: Path) -> tokenizers.Tokenizer:
    """Read and check the trained pipeline."""
    text = _read(path)
    try:
        engine = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # `tokenizers` raises bare Exceptions.
        reason = str(error).partition("\n")[0]
        raise StorageError(f"{path} is damaged: {reason}") from None
    if [engine.id_to_token(index) for index in range(len(SPECIALS))] != list(SPECIALS):
        raise StorageError(f"{path} is damaged: its first ids are not {' '.join(SPECIALS)}")
    return engine


def _write(path: Path, text: str) -> None:
    try:
        path.write_bytes(text.encode() + b"\n")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from None


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        raise MissingInputError(f"there is no tokenizer in {path.parent}: {path.name} is missing") from None
    except UnicodeDecodeError:
        raise StorageError(f"{path} is damaged: it is not UTF-8") from None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from None
