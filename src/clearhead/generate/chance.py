"""A seed and names of rows in, numbers to draw with out; importing it does not import torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BLOCK = 256
"""Steps whose numbers are drawn at once: a text may be asked for that is longer than any memory."""


class Chances:
    """Numbers from 0 up to 1 for each row, copy and step, that do not depend on which others are asked for.

    Steps are asked for in order; what lies more than a block behind is forgotten.
    """

    def __init__(self, seed: int, row_keys: Sequence[int], copies: int) -> None:
        self._shape = len(row_keys), copies
        self._streams = [_stream(seed, row_key, copy) for row_key in row_keys for copy in range(copies)]
        self._first, self._numbers = -BLOCK, np.empty((*self._shape, BLOCK))

    def at(self, step: int) -> NDArray[np.float64]:
        """The numbers of a step, (rows, copies)."""
        while step >= self._first + BLOCK:
            drawn = [stream.random(BLOCK) for stream in self._streams]
            self._first, self._numbers = self._first + BLOCK, np.reshape(drawn, (*self._shape, BLOCK))
        return self._numbers[:, :, step - self._first]


def _stream(seed: int, row_key: int, copy: int) -> np.random.Generator:
    # Philox is counter-based (Salmon et al. 2011): the key chooses a stream, the counter's top word a part of it.
    counter = np.array([0, 0, 0, copy], dtype=np.uint64)
    key = np.array([seed, row_key % 2**64], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(counter=counter, key=key))
