"""Features in, the same features with some put to zero out, while training: torch's dropout, at a fraction of its cost.

On a CPU torch draws a random number for every feature, which takes longer than most layers. One byte is enough: a
64-bit draw makes eight decisions. The share that is dropped is thereby a multiple of 1/256, and what remains is scaled
for just that share, so the expected value is exact.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

LEVELS = 256


class Dropout(nn.Module):
    """Drops a share `p` of features while training, and nothing at inference."""

    def __init__(self, p: float = 0.0, *, by_bytes: bool = True) -> None:
        super().__init__()
        self.p, self.by_bytes = p, by_bytes

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if not self.training or self.p == 0.0:
            return x
        if not self.by_bytes or x.device.type != "cpu":
            return F.dropout(x, self.p)
        return x * keep_mask(x, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def keep_mask(like: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """Zero with probability `p`, rounded to 1/256, and what keeps the mean at one otherwise."""
    dropped = min(max(round(p * LEVELS), 1), LEVELS - 1)
    words = -(-like.numel() // 8)
    # From the lowest to the highest integer: by default the sign bit of each word would always be zero.
    drawn = torch.empty(words, dtype=torch.int64).random_(-(2**63), None)
    mask = torch.empty_like(like, memory_format=torch.contiguous_format, requires_grad=False)
    mask.copy_(drawn.view(torch.int8)[: like.numel()].view(like.shape))
    return mask.ge_(dropped - LEVELS // 2).mul_(LEVELS / (LEVELS - dropped))
