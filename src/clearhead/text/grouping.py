"""The bytes of a text's pieces in, the number of the word that each belongs to out: sub-words become words again."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

# Han, kana, CJK punctuation and full-width forms: written without spaces, so that a piece is the nearest to a word.
CJK_RANGES = (
    (0x2E80, 0x2FDF), (0x3001, 0x30FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF), (0xFF01, 0xFF60), (0x20000, 0x3FFFF),
)  # fmt: skip
APOSTROPHES = "'’"
NUMBER_MARKS = ".,:"


def group(pieces: Sequence[bytes | None]) -> list[int]:
    """Number the words that pieces make up, from 0; None is a control token, which stands alone.

    A piece that begins inside a character belongs to the piece before it, and so does one that goes on with a word.
    Each piece of Chinese that is not a part of a character is a word of its own.

    >>> group([b" twen", b"ty", b"-", b"three", None])
    [0, 0, 1, 2, 3]
    >>> group(["我".encode(), "苹果".encode()[:2], "苹果".encode()[2:], b"!"])
    [0, 1, 1, 2]
    """
    numbers: list[int] = []
    text, starts = _characters(pieces)
    for place, piece in enumerate(pieces):
        is_new = place == 0 or piece is None or pieces[place - 1] is None
        if not is_new and (start := starts[place]) is not None:
            is_new = _is_border(text, start)
        numbers.append((numbers[-1] if numbers else -1) + is_new)
    return numbers


def _characters(pieces: Sequence[bytes | None]) -> tuple[str, list[int | None]]:
    """The text of all pieces, and where in it each piece begins: None if that is inside a character."""
    raw = b"".join(piece or b"" for piece in pieces)
    text = raw.decode("utf-8", "surrogateescape")
    begins: dict[int, int] = {}
    place = 0
    for index, character in enumerate(text):
        begins[place] = index
        place += len(character.encode("utf-8", "surrogateescape"))
    starts: list[int | None] = []
    place = 0
    for piece in pieces:
        starts.append(begins.get(place) if piece else None)
        place += len(piece or b"")
    return text, starts


def _is_border(text: str, at: int) -> bool:
    """Whether a word may begin at a character that a piece begins with."""
    before, here, after = text[at - 1 : at], text[at], text[at + 1 : at + 2]
    if here.isspace():
        return not before.isspace()
    if before.isspace() or unicodedata.category(here) in ("Mn", "Mc", "Me", "Cf"):
        return False
    kinds = _kind(before), _kind(here)
    if "cjk" in kinds:
        return True
    if _joins(before, here, after) or (at > 1 and _joins(text[at - 2], before, here)):
        return False
    return kinds[0] != kinds[1]


def _joins(before: str, mark: str, after: str) -> bool:
    """Whether a mark is a part of the word around it: don't, O'Brien, 3.14, 10:30."""
    if mark in APOSTROPHES:
        return before.isalpha() and after.isalpha()
    return mark in NUMBER_MARKS and before.isdigit() and after.isdigit()


def _kind(character: str) -> str:
    if any(low <= ord(character) <= high for low, high in CJK_RANGES):
        return "cjk"
    category = unicodedata.category(character)
    return {"L": "letter", "M": "letter", "N": "number"}.get(category[0], "mark")
