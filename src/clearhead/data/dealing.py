"""The batches of a step in, the part that one of several processes does of them out.

What a step holds is the same for any number of processes, and every row goes to just one of them. Each gets as many
parts as all the others, some perhaps empty, because they must meet after each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clearhead.data.examples import Integers


def deal(batches: Sequence[Integers], work: Integers, rank: int, size: int) -> list[Integers]:
    """Whole batches where they can be shared out evenly, else an even part of the rows of each.

    `work` says how much each row of the corpus is.
    """
    mine = [batches[number] for number in has_part_in(len(batches), rank, size)]
    if _goes_up(len(batches), size):
        return mine
    return [part_of_rows(batch, work[batch], rank, size) for batch in mine]


def has_part_in(count: int, rank: int, size: int) -> range:
    """Of which of so many batches a process is dealt something, in the order of its parts."""
    return range(rank, count, size) if _goes_up(count, size) else range(count)


def _goes_up(count: int, size: int) -> bool:
    return count % size == 0


def deal_whole(batches: Sequence[Integers], rank: int, size: int) -> list[Integers]:
    """Whole batches in turn, and empty ones in place of those that are missing in the last round."""
    rounds = -(-len(batches) // size)
    nothing = np.empty(0, dtype=np.int64)
    mine = range(rank, rounds * size, size)
    return [batches[number] if number < len(batches) else nothing for number in mine]


def part_of_rows(rows: Integers, work: Integers, rank: int, size: int) -> Integers:
    """Neighbours, so that a batch sorted by length is cut into parts with little padding.

    A row belongs to the process into whose even share of all work its middle falls; so no share is further from the
    even one than the largest row is large.
    """
    # Twice the middle, to stay with whole numbers.
    middles = 2 * np.cumsum(work) - work
    owners = middles * size // max(1, 2 * int(work.sum()))
    return rows[owners == rank]
