"""Two texts and the limits come in; the reason to leave the pair out, or that it is kept, goes out."""

from __future__ import annotations

from pydantic import Field

from clearhead.config import Record
from clearhead.data.reasons import Reason

_FREE_BYTES = 10


class Limits(Record):
    """What a pair must be like to be used."""

    max_chars: int = Field(default=1000, ge=1)
    """Pairs with more characters than this on either side are left out."""

    max_ratio: float = Field(default=4.0, gt=1.0)
    """Pairs in which one side has more than this many times the UTF-8 bytes of the other are left out. Bytes are a fair
    measure across scripts: a Chinese character says more than a letter and has three. A side with fewer than 10 bytes
    counts as 10, so that short answers pass."""

    drop_identical: bool = True
    """Leave out pairs whose two sides are the same text, unless it has no letters ("2001" may stay "2001")."""

    drop_duplicates: bool = True
    """Leave out pairs that came before."""


def judge(source: str, target: str, limits: Limits) -> Reason:
    """Judge one pair by itself; both texts are already free of outer whitespace."""
    if not source or not target:
        return Reason.EMPTY
    if max(len(source), len(target)) > limits.max_chars:
        return Reason.TOO_LONG
    if limits.drop_identical and source == target and any(map(str.isalpha, source)):
        return Reason.IDENTICAL
    one, other = _num_bytes(source), _num_bytes(target)
    if max(one, other) > limits.max_ratio * max(min(one, other), _FREE_BYTES):
        return Reason.RATIO
    return Reason.KEPT


def _num_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
