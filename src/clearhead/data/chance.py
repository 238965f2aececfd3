"""A draw and the numbers of examples in, random bits out that follow from these alone, whoever asks and whenever."""

from __future__ import annotations

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from clearhead.data.examples import Draw, Integers
from clearhead.data.hashes import ODD, scramble

FIXED = Draw(seed=0, epoch=2**32 - 1)
"""What validation draws from: an epoch that no training comes to."""


def bits(draw: Draw | None, numbers: Integers, width: int, purpose: str) -> NDArray[np.uint64]:
    """64 bits for each of `width` places of each example; every purpose has its own (the generator is splitmix64)."""
    seed, epoch = draw or FIXED
    start = SeedSequence([seed, epoch, *purpose.encode()]).generate_state(1, np.uint64)
    states = scramble(np.asarray(numbers).astype(np.uint64) * np.uint64(ODD) + start, 0)
    return scramble(states[:, None] + np.arange(1, width + 1, dtype=np.uint64) * np.uint64(ODD), 0)


def shares(drawn: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Bits as numbers from 0 up to, but not including, 1."""
    return (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53
