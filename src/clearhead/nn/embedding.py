"""Token ids in, vectors out, and vectors in, logits out; the two may share one table.

How tables are shared is one of TIES: `none`, `target` (target embedding with output) or `all` (source as well).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

TIES = ("none", "target", "all")


class TokenEmbedding(nn.Module):
    """One trained vector per token, multiplied by √dim where it is scaled, as in the paper."""

    def __init__(self, vocab_size: int, dim: int, *, scaled: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, dim))
        self.scale = math.sqrt(dim) if scaled else 1.0

    def forward(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time dim"]:
        return F.embedding(ids, self.weight) * self.scale


class OutputLayer(nn.Module):
    """One score per vocabulary entry; `weight` may be an embedding's own table."""

    def __init__(
        self, dim: int, vocab_size: int, tied_to: TokenEmbedding | None = None, *, biased: bool = False
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, dim)) if tied_to is None else tied_to.weight
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if biased else None

    def forward(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch vocab"]:
        return F.linear(x, self.weight, self.bias)
