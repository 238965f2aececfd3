"""The entries of somebody else's vocabulary in, the same with our control tokens first out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clearhead.errors import DataError
from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID

NEVER = -1e3
"""The score of entries that only we have: far below all others, but no further, for the steps between numbers grow
with them, and engines round in different ways: ten times as much, and a copy would seem a thousandth apart."""


@dataclass(frozen=True)
class Vocabulary:
    """Entries by our ids, and whose row of the original's table each takes."""

    entries: list[str]
    rows: list[int]
    extra: list[int]
    """Our ids of entries that the original has not."""


def reordered(ids: Mapping[str, int], size: int, controls: Sequence[int], where: Path) -> Vocabulary:
    """All rows of a table of this size; `controls` are the original's ids of <s>, </s>, <blank> and <unk>.

    These may be one and the same: then it is said as the end, or else the beginning, and the others are ours alone.
    """
    if not all(0 <= row < size for row in (*ids.values(), *controls)):
        raise DataError(f"{where} has ids that are not among the {size:,} rows of the model's table")
    token_of = {row: token for token, row in ids.items()}
    others = [row for row in range(size) if row not in controls]
    # Rows that no entry names stay: they have a part in every probability.
    entries = [*SPECIALS, *(_entry(token_of.get(row), row) for row in others)]
    if len({*entries}) < len(entries):
        raise DataError(f"{where}: its tokenizer has the same entry twice")
    said: dict[int, int] = {}
    for index in (EOS_ID, BOS_ID, UNK_ID, PAD_ID):
        said.setdefault(controls[index], index)
    extra = [index for index, row in enumerate(controls) if said[row] != index]
    return Vocabulary(entries, [*controls, *others], extra)


def _entry(token: str | None, row: int) -> str:
    """What an entry is called here, where one that is no control token cannot have the name of one."""
    if token is None:
        return f"[row{row}]"
    return f"[{token}]" if token in SPECIALS else token
