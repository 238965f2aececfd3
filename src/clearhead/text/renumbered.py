"""Somebody else's tokenizer in, the same pipeline with our control tokens first out.

Read is `tokenizer.json`, as Hugging Face `tokenizers` write it, or where there is none the older files: `vocab.json`
and `merges.txt` of a byte-level BPE, `vocab.txt` of WordPiece. A new kind is one line in FORMATS.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from clearhead.errors import DataError, MissingInputError
from clearhead.storage import read_json
from clearhead.text.kinds import CONTINUED
from clearhead.text.specials import SPECIALS, UNK


@dataclass(frozen=True)
class Theirs:
    """A tokenizer as its makers numbered it."""

    path: Path
    """Its directory."""
    tree: Mapping[str, Any]
    """What its tokenizer.json says, or would."""
    names: Mapping[str, Any]
    """What its tokenizer_config.json says."""

    @property
    def ids(self) -> dict[str, int]:
        """Every entry, those that were added included."""
        added = {token["content"]: token["id"] for token in self.tree["added_tokens"]}
        return {**self.tree["model"]["vocab"], **added}

    def control(self, name: str, usual: str) -> int:
        """The id of a control token, such as cls_token, by the name it has here or usually has."""
        token = _control(self.names, name, usual)
        if token not in self.ids:
            raise DataError(
                f"{self.path}: its tokenizer has no {token} ({name}), which a text cannot be framed without"
            )
        return self.ids[token]


class Format(NamedTuple):
    """What there is to know of one kind."""

    model: str
    """What `tokenizers` call it."""
    files: tuple[str, ...]
    """The older files it may come in."""
    read: Callable[[Sequence[Path], Mapping[str, Any]], tokenizers.Tokenizer]
    """What these files and tokenizer_config.json make."""
    problem: Callable[[Mapping[str, Any]], str | None]
    """Why a pipeline of this kind cannot be used here, if so."""


def read_tokenizer(directory: Path, kind: str) -> Theirs:
    """Read the tokenizer of a directory, or say why it is none of this kind."""
    form = FORMATS[kind]
    notes = directory / "tokenizer_config.json"
    names = read_json(notes) if notes.is_file() else {}
    whole, parts = directory / "tokenizer.json", [directory / name for name in form.files]
    if not whole.is_file() and not all(part.is_file() for part in parts):
        raise MissingInputError(f"{directory} has no tokenizer: neither tokenizer.json nor {' and '.join(form.files)}")
    try:
        engine = tokenizers.Tokenizer.from_file(str(whole)) if whole.is_file() else form.read(parts, names)
    except Exception as error:  # `tokenizers` raises bare Exceptions.
        reason = str(error).partition("\n")[0]
        raise DataError(f"{whole if whole.is_file() else parts[0]} cannot be read: {reason}") from None
    tree = json.loads(engine.to_str())
    found = str(tree["model"]["type"])
    problem = f"it is {found}, not {form.model}" if found != form.model else form.problem(tree)
    if problem is not None:
        raise DataError(f"{directory}: its tokenizer is not known here: {problem}")
    return Theirs(directory, tree, names)


def renumbered(theirs: Theirs, entries: Sequence[str]) -> tokenizers.Tokenizer:
    """The same pipeline with these entries for ids, control tokens first.

    Tokens that its makers added to be found anywhere in a text still are; its control tokens are mere entries, which
    no text spells.
    """
    ids = {entry: index for index, entry in enumerate(entries)}
    model = {**theirs.tree["model"], "vocab": ids}
    model["unk_token"] = UNK if model["unk_token"] else None
    if "dropout" in model:
        model["dropout"] = None
    ordinary = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added: list[dict[str, Any]] = [{"id": ids[name], "content": name, "special": True, **ordinary} for name in SPECIALS]
    for token in theirs.tree["added_tokens"]:
        if not token["special"] and token["content"] in ids:
            added.append({**token, "id": ids[token["content"]]})
    added.sort(key=lambda token: int(token["id"]))
    unused = dict.fromkeys(("truncation", "padding", "post_processor"))
    tree = {**theirs.tree, **unused, "model": model, "added_tokens": added}
    return tokenizers.Tokenizer.from_str(json.dumps(tree))


def _bpe(files: Sequence[Path], names: Mapping[str, Any]) -> tokenizers.Tokenizer:
    vocab, merges = map(str, files)
    engine = tokenizers.Tokenizer(models.BPE.from_file(vocab, merges))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(names.get("add_prefix_space")))
    engine.decoder = decoders.ByteLevel()
    return engine


def _over_bytes(tree: Mapping[str, Any]) -> str | None:
    steps = {step["type"] for step in _steps(tree["pre_tokenizer"])}
    return None if "ByteLevel" in steps else "its pieces are not made of bytes"


def _wordpiece(files: Sequence[Path], names: Mapping[str, Any]) -> tokenizers.Tokenizer:
    lines = files[0].read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    vocab = {line.removesuffix("\r"): index for index, line in enumerate(lines)}
    engine = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=_control(names, "unk_token", "[UNK]")))
    chinese, lowercase = names.get("tokenize_chinese_chars"), names.get("do_lower_case")
    engine.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True if chinese is None else bool(chinese),
        strip_accents=names.get("strip_accents"),
        lowercase=True if lowercase is None else bool(lowercase),
    )
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix=CONTINUED)
    return engine


def _continued(tree: Mapping[str, Any]) -> str | None:
    prefix = tree["model"]["continuing_subword_prefix"]
    return None if prefix == CONTINUED else f"pieces that go on with a word begin with {prefix!r}, not {CONTINUED!r}"


def _control(names: Mapping[str, Any], name: str, usual: str) -> str:
    given = names.get(name) or usual
    return str(given["content"] if isinstance(given, Mapping) else given)


def _steps(step: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """All steps of a pipeline, those within others too."""
    if step is not None:
        yield step
        for inner in step.get("pretokenizers", ()):
            yield from _steps(inner)


FORMATS: dict[str, Format] = {
    "bpe": Format("BPE", ("vocab.json", "merges.txt"), _bpe, _over_bytes),
    "wordpiece": Format("WordPiece", ("vocab.txt",), _wordpiece, _continued),
}
