"""Hashes of texts in, which of the texts are chosen, or came before, out: all of it follows from the texts alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError

Hashes = NDArray[np.uint64]

TEST_SEED = 0x74657374
"""The letters of "test": a seed of its own, so that what is tested on is not the first to be validated on."""
ODD = 0x9E3779B97F4A7C15

_CHUNK = 1 << 20


def hold_out(
    groups: Hashes, eligible: NDArray[np.bool_], amount: int | float | None, seed: int, what: str, of: str
) -> NDArray[np.bool_]:
    """Choose some that are eligible (True): at most a count, or a share below 1, or 5 % and at most 2,000.

    Those of a group go together. The choice depends on the groups' hashes and the seed, not on their order; with a
    share, each group is chosen by itself, so that more data move none of it. Messages speak of so many `what`, and
    of groups by what makes them, `of`.
    """
    keys = scramble(groups, seed)
    distinct, sizes = np.unique(keys[eligible], return_counts=True)
    kept = int(sizes.sum())
    if isinstance(amount, float) and 0 < amount < 1:
        chosen = distinct[distinct < np.uint64(int(amount * 2**64))]
        if len(chosen) in (0, len(distinct)):
            all_or_none = "all" if len(chosen) else "none"
            raise DataError(
                f"cannot hold out {amount:g} of {kept:,} {what}: that is {all_or_none} of them; give a count"
            )
        return eligible & is_among(keys, chosen)
    count = _count(amount, kept, what)
    sizes[sizes > count] = 0
    chosen = distinct[(sizes > 0) & (np.cumsum(sizes) <= count)]
    if not len(chosen):
        raise DataError(f"cannot hold out {count:,} of {kept:,} {what}: there are too few different {of}")
    return eligible & is_among(keys, chosen)


def _count(amount: int | float | None, kept: int, what: str) -> int:
    if amount is None:
        count = min(2_000, max(1, kept // 20))
    else:
        count = amount if isinstance(amount, int) else round(amount * kept)
    if not 1 <= count < kept:
        raise DataError(f"cannot hold out {count:,} of {kept:,} {what}: some must be left on both sides")
    return count


def repetitions(keys: Hashes, eligible: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Where a key stands that an eligible one before it has already."""
    in_order = keys[eligible]
    in_order.sort()
    repeated = np.unique(in_order[1:][in_order[1:] == in_order[:-1]])
    candidates = np.flatnonzero(eligible & is_among(keys, repeated))
    _, first = np.unique(keys[candidates], return_index=True)
    return np.delete(candidates, first)


def paired(first: Hashes, second: Hashes) -> Hashes:
    """One hash for two."""
    keys = first * np.uint64(ODD)
    keys += second
    return keys


def is_among(keys: Hashes, few: Hashes) -> NDArray[np.bool_]:
    """Which keys occur among a few sorted ones; unlike `np.isin` this does not copy and sort the many."""
    found = np.zeros(len(keys), dtype=np.bool_)
    if len(few):
        for start in range(0, len(keys), _CHUNK):
            part = keys[start : start + _CHUNK]
            place = np.minimum(np.searchsorted(few, part), len(few) - 1)
            found[start : start + _CHUNK] = few[place] == part
    return found


def scramble(hashes: Hashes, seed: int) -> Hashes:
    """Another order of the hashes for every seed (the end of splitmix64)."""
    mixed = hashes + np.uint64(seed * ODD % 2**64)
    # In place, for there may be many.
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
