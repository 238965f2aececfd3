"""The batches of a step in, the part that one of several processes does of them out.

What a step holds is the same for any number of processes, and every row goes to just one of them. Each gets as many
parts as all the others, some perhaps empty, because they must meet after each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.integer[Any]]


def deal(batches: Sequence[Rows], tokens: NDArray[np.int64], rank: int, size: int) -> list[Rows]:
    """Whole batches where they can be shared out evenly, else an even part of the rows of each.

    `tokens` says how much work each row of the corpus is.
    """
    if len(batches) % size == 0:
        return list(batches[rank::size])
    return [part_of_rows(batch, tokens[batch], rank, size) for batch in batches]


def deal_whole(batches: Sequence[Rows], rank: int, size: int) -> list[Rows]:
    """Whole batches in turn, and empty ones in place of those that are missing in the last round."""
    rounds = -(-len(batches) // size)
    nothing = np.empty(0, dtype=np.int64)
    mine = range(rank, rounds * size, size)
    return [batches[number] if number < len(batches) else nothing for number in mine]


def part_of_rows(rows: Rows, tokens: NDArray[np.int64], rank: int, size: int) -> Rows:
    """Neighbours, so that a batch sorted by length is cut into parts with little padding.

    A row belongs to the process into whose even share of all tokens its middle falls; so no share is further from the
    even one than the longest row is long.
    """
    # Twice the middle, to stay with whole numbers.
    middles = 2 * np.cumsum(tokens) - tokens
    owners = middles * size // max(1, 2 * int(tokens.sum()))
    return rows[owners == rank]
