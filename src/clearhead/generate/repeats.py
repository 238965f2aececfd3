"""Token ids in, how often phrases repeat in them out: what makes a loop; importing it does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import eq

MAX_REPEATS = 2
"""So often in a row a phrase may come in any result; more often only if it does in the source."""
MAX_BLOCK = 12
"""The longest phrase, in tokens, that is looked for."""
FINE_GRAINED_SPAN = 24
"""In characters and bytes a repetition is a loop only from this many tokens on: 000000 is a number."""


def guard_span(kind: str) -> int:
    """The fewest repeated tokens, all repetitions together, that make a loop with this kind of tokenizer.

    >>> guard_span("bpe"), guard_span("char")
    (1, 24)
    """
    return FINE_GRAINED_SPAN if kind in ("char", "byte") else 1


def count_repeats(ids: Sequence[int], max_block: int = MAX_BLOCK) -> int:
    """How often in a row a phrase of up to `max_block` tokens comes: what a source that repeats allows its result.

    >>> count_repeats([7, 1, 2, 1, 2, 1, 2, 9])
    3
    >>> count_repeats([])
    1
    """
    ids = list(ids)
    most = 1
    for block in range(1, min(max_block, len(ids) // 2) + 1):
        same = list(map(eq, ids[block:], ids))
        # A phrase that comes once more than `most` times agrees with itself that far: most texts end here.
        if sum(same) >= most * block:
            longest = max(sum(run) for _, run in groupby(same))
            most = max(most, longest // block + 1)
    return most
