"""A seed and names of rows in, numbers to draw with out; importing it does not import torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def uniform_numbers(seed: int, row_keys: Sequence[int], copies: int, steps: int) -> NDArray[np.float64]:
    """Numbers from 0 up to 1, (rows, copies, steps), that do not depend on which others are asked for."""
    # Philox is counter-based (Salmon et al. 2011): the key chooses a stream, the counter's top word a part of it.
    numbers = np.empty((len(row_keys), copies, steps))
    for row, row_key in enumerate(row_keys):
        key = np.array([seed, row_key % 2**64], dtype=np.uint64)
        for copy in range(copies):
            counter = np.array([0, 0, 0, copy], dtype=np.uint64)
            numbers[row, copy] = np.random.Generator(np.random.Philox(counter=counter, key=key)).random(steps)
    return numbers
