"""A SentencePiece model file in, a pipeline of Hugging Face `tokenizers` with the same pieces out.

The file is a protocol buffer, of which a few fields are read here: the pieces with their scores, and how text is
normalised. Only unigram models are known; the pieces may get any ids, and a vocabulary may hold entries that are not
pieces of this file, as the joint vocabularies of Marian do.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from clearhead.errors import DataError, MissingInputError
from clearhead.text.specials import SPECIALS, UNK_ID

SPACE = "▁"
FOREIGN = "\ufdd0"
"""Stands before an entry that is not to be found in text: a noncharacter, which no text may hold."""
STRANGE = "\ufdd1"
"""Stands for several unknown characters in a row."""
UNKNOWN_PENALTY = 10.0
"""How much less likely than the least likely piece a character is that is none: SentencePiece's own number."""
NORMAL = 1
KINDS_OF_PIECES = {4: "user-defined pieces", 6: "bytes"}
"""What is not known here."""


@dataclass(frozen=True)
class SentencePieces:
    """What is needed of a SentencePiece model."""

    scores: dict[str, float]
    charsmap: bytes
    """How characters are normalised, in SentencePiece's compiled form; empty for not at all."""
    adds_space: bool
    """Whether a text begins with a space."""
    removes_spaces: bool
    """Whether spaces at the ends, and all but one between words, are removed."""


def read_pieces(path: Path) -> SentencePieces:
    """Read a SentencePiece model, or say why it cannot be used."""
    try:
        fields = list(_fields(path.read_bytes()))
    except FileNotFoundError:
        raise MissingInputError(f"there is no {path}") from None
    except (IndexError, ValueError, struct.error):
        raise DataError(f"{path} is not a SentencePiece model") from None
    try:
        trainer = dict(_fields(dict(fields).get(2, b"")))
        normalizer = dict(_fields(dict(fields).get(3, b"")))
        pieces = [dict(_fields(value)) for number, value in fields if number == 1]
        scores = {_string(piece[1]): _float(piece.get(2)) for piece in pieces if piece.get(3, NORMAL) == NORMAL}
    except (IndexError, KeyError, TypeError, ValueError, struct.error):
        raise DataError(f"{path} is not a SentencePiece model") from None
    strange = [what for kind, what in KINDS_OF_PIECES.items() if any(piece.get(3) == kind for piece in pieces)]
    strange += ["another algorithm than unigram"] if trainer.get(3, 1) != 1 else []
    strange += ["pieces across spaces"] if trainer.get(22, 1) != 1 or trainer.get(24, 0) != 0 else []
    if strange or not scores:
        raise DataError(f"{path} uses {strange[0] if strange else 'no pieces'}, which is not known here")
    return SentencePieces(scores, normalizer.get(2, b""), bool(normalizer.get(3, 1)), bool(normalizer.get(4, 1)))


def sentencepiece_engine(pieces: SentencePieces, vocabulary: Sequence[str]) -> tokenizers.Tokenizer:
    """A pipeline that cuts text as SentencePiece does; the entries of a vocabulary are its ids, control tokens first.

    An entry that is no piece of the model but a single character stands for that character where the model does not
    know it, nor its neighbours: several unknown ones in a row are one unknown piece. All other such entries are never
    found in text, only spelt out. Language codes such as >>fra<< are tokens wherever they stand.
    """
    codes = [entry for entry in vocabulary if entry.startswith(">>") and entry.endswith("<<")]
    least = min(pieces.scores.values()) - UNKNOWN_PENALTY
    known = {piece for piece in pieces.scores if len(piece) == 1}
    entries: list[tuple[str, float]] = []
    for index, entry in enumerate(vocabulary):
        if index < len(SPECIALS) or entry in codes:
            entries.append((entry, 0.0))
        elif entry in pieces.scores:
            entries.append((entry, pieces.scores[entry]))
        else:
            entries.append((entry, least) if len(entry) == 1 else (FOREIGN + entry, 0.0))
    engine = tokenizers.Tokenizer(models.Unigram(entries, UNK_ID, byte_fallback=False))
    engine.normalizer = _normalizer(pieces, known)
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(SPACE, prepend_scheme="always" if pieces.adds_space else "never"),
            # In one piece they would be control tokens.
            pre_tokenizers.Split(Regex(f"<(?={'|'.join(special[1:] for special in SPECIALS)})"), "isolated"),
        ]
    )
    engine.decoder = decoders.Sequence(
        [
            decoders.Replace(FOREIGN, ""),
            decoders.Metaspace(SPACE, prepend_scheme="always" if pieces.adds_space else "never"),
        ]
    )
    engine.add_special_tokens(list(SPECIALS))
    engine.add_tokens([AddedToken(code, normalized=False) for code in codes])
    return engine


def _normalizer(pieces: SentencePieces, known: set[str]) -> normalizers.Normalizer:
    steps: list[Any] = [normalizers.Precompiled(pieces.charsmap)] if pieces.charsmap else []
    steps.append(normalizers.Replace(FOREIGN, "\N{REPLACEMENT CHARACTER}"))
    if pieces.removes_spaces:
        steps += [normalizers.Replace(Regex("^ +| +$"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    unknown = f"[^{_class({*known, SPACE, ' '})}]{{2,}}"
    steps.append(normalizers.Replace(Regex(unknown), STRANGE))
    return normalizers.Sequence(steps)


def _class(characters: set[str]) -> str:
    """Characters as they stand between the brackets of a regular expression, neighbours as ranges.

    >>> _class(set("abc-"))
    '\\\\x{2d}\\\\x{61}-\\\\x{63}'
    """
    codes = sorted(map(ord, characters))
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    ends = [[f"\\x{{{end:x}}}" for end in sorted(set(both))] for both in ranges]
    return "".join("-".join(both) for both in ends)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of one message: numbers, four or eight bytes, or any bytes, as they stand."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _varint(data, place)
            yield number, value
            continue
        if wire == 2:
            size, place = _varint(data, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if place + size > len(data):
            raise IndexError("the message ends too soon")
        yield number, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("a number that is too long")


def _string(value: Any) -> str:
    return bytes(value).decode("utf-8")


def _float(value: Any) -> float:
    return 0.0 if value is None else float(struct.unpack("<f", value)[0])
