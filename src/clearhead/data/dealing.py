"""The batches of a step in, the part that one of several processes does of them out.

What a step holds is the same for any number of processes, and every row goes to just one of them. Each gets as many
parts as all the others, some perhaps empty, because they must meet after each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clearhead.data.examples import Integers


def deal(batches: Sequence[Integers], work: Integers, rank: int, size: int) -> list[tuple[int, Integers]]:
    """Whole batches where all can have as many of them, else an even part of the rows of each; and which batches.

    `work` says how much each row of the corpus is.
    """
    if len(batches) % size:
        return [(number, part_of_rows(batch, work[batch], rank, size)) for number, batch in enumerate(batches)]
    return [
        (number, batches[number]) for number in even_lots([int(work[batch].sum()) for batch in batches], size)[rank]
    ]


def even_lots(amounts: Sequence[int], size: int) -> list[list[int]]:
    """The numbers of some amounts in lots of as many each, whose sums are close: the largest goes to who has least."""
    lots: list[list[int]] = [[] for _ in range(size)]
    sums = [0] * size
    largest_first = sorted(range(len(amounts)), key=lambda number: -amounts[number])
    for first in range(0, len(amounts), size):
        least_first = sorted(range(size), key=lambda lot: sums[lot])
        for lot, number in zip(least_first, largest_first[first : first + size], strict=True):
            lots[lot].append(number)
            sums[lot] += amounts[number]
    return [sorted(lot) for lot in lots]


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
