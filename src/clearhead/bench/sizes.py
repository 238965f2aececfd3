"""A name in, the size of model that every contestant has out, and how much arithmetic it needs.

A new size is one line in SIZES.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Size:
    """A translator's shape, and the recipe whose data it reads; a joint vocabulary is of the size given here."""

    recipe: str
    dim: int
    ff_dim: int
    num_heads: int
    num_layers: int
    dropout: float
    source_vocab_size: int
    target_vocab_size: int
    joint: bool
    """Whether one table serves source, target and output."""
    accumulate: int = 1
    """In how many batches Clearhead goes through the tokens of a step: wide models want little at once."""
    narrow_accumulate: int = 1
    """The same in bf16, where gradients of weights are added up for longer than they are computed."""
    warm_up: int = 8
    """Steps before the first round: in bf16 oneDNN still compiles products for new numbers of rows in them."""

    def batches_in_step(self, precision: str) -> int:
        """In how many batches Clearhead goes through a step in a number format."""
        return self.accumulate if precision == "fp32" else self.narrow_accumulate


SIZES = {
    "tiny": Size("multi30k", 128, 256, 4, 4, 0.3, 10_000, 10_000, joint=True, warm_up=24),
    "base": Size("multi30k-notes", 512, 2048, 8, 6, 0.1, 8_300, 6_400, joint=False, accumulate=4, narrow_accumulate=2),
}


def useful_flops(size: Size, source: NDArray[np.int64], target: NDArray[np.int64]) -> float:
    """Operations that training on sentences of these lengths needs, padding and embeddings not counted.

    Two for each multiplication with a weight or between two positions, and thrice for forward and both gradients:
    6 · (S · (L(4d² + 2df) + 2Ld²) + T · (L(6d² + 2df) + dV) + 2Ld(S² + T² + ST)) for S source and T target tokens,
    L layers a side, width d, inner width f and V target entries.
    """
    depth, dim, ff_dim = size.num_layers, size.dim, size.ff_dim
    for_source = depth * (4 * dim**2 + 2 * dim * ff_dim) + 2 * depth * dim**2
    for_target = depth * (6 * dim**2 + 2 * dim * ff_dim) + dim * size.target_vocab_size
    between = 2 * depth * dim * (source**2 + target**2 + source * target)
    return float(6 * (source * for_source + target * for_target + between).sum())
