"""Why a pair is left out: its number in a mask, its name and what it means; a new reason is one number and one line."""

from __future__ import annotations

from enum import IntEnum


class Reason(IntEnum):
    """The verdict on one pair; the number is what is stored, so it never changes its meaning."""

    KEPT = 0
    EMPTY = 1
    RATIO = 2
    TOO_LONG = 3
    BAD_ENCODING = 4
    CONTROL = 5
    DUPLICATE = 6
    IDENTICAL = 7
    MISSING_COLUMN = 8

    @property
    def label(self) -> str:
        """The name people read."""
        return "kept" if self is Reason.KEPT else REASONS[self][0]


REASONS: dict[Reason, tuple[str, str]] = {
    Reason.EMPTY: ("empty side", "one side or both hold nothing but whitespace"),
    Reason.RATIO: ("ratio", "one side has far more UTF-8 bytes than the other"),
    Reason.TOO_LONG: ("too long", "a side has more characters than allowed"),
    Reason.BAD_ENCODING: ("bad encoding", "a side is not valid UTF-8"),
    Reason.CONTROL: ("control characters", "a side holds NUL or another character that is not text"),
    Reason.DUPLICATE: ("duplicate", "the same source and target came before; the first is kept"),
    Reason.IDENTICAL: ("identical sides", "source and target are the same text, and it has letters"),
    Reason.MISSING_COLUMN: ("missing column", "the row has too few tab-separated columns"),
}
