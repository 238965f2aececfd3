"""The vectors of a sequence in, one vector for all of it out.

Padding counts for nothing, and a token that holds several others for as many as `counts` says.

A new way is one class and one line in POOLINGS.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from clearhead.nn import masks
from clearhead.nn.kernels import MaskedSoftmax
from clearhead.nn.tokens import LEAST


class Pooling(nn.Module, ABC):
    """Many positions to one."""

    is_first: ClassVar[bool] = False
    """Whether all that counts is the first position."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    @abstractmethod
    def forward(
        self,
        x: Float[Tensor, "batch time dim"],
        real: Bool[Tensor, "batch time"] | None = None,
        counts: Float[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch dim"]: ...


class Mean(Pooling):
    """The mean over real tokens."""

    def forward(
        self,
        x: Float[Tensor, "batch time dim"],
        real: Bool[Tensor, "batch time"] | None = None,
        counts: Float[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch dim"]:
        if real is None and counts is None:
            return x.mean(1)
        real = torch.ones_like(x[..., 0], dtype=torch.bool) if real is None else real
        # Filled and not multiplied: what stands in padding may be anything, and 0 · inf is not a number.
        x = x.masked_fill(~real[:, :, None], 0.0)
        if counts is None:
            return x.sum(1) / real.sum(1, keepdim=True).clamp(min=1)
        shares = (counts * real).to(x.dtype)
        return (x * shares[:, :, None]).sum(1) / shares.sum(1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)


class First(Pooling):
    """The first token, which has looked at all others."""

    is_first = True

    def forward(
        self,
        x: Float[Tensor, "batch time dim"],
        real: Bool[Tensor, "batch time"] | None = None,
        counts: Float[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch dim"]:
        return x[:, 0]


class FirstTanh(First):
    """The first token through one more map and tanh, as in BERT."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.dense = nn.Linear(dim, dim)

    def forward(
        self,
        x: Float[Tensor, "batch time dim"],
        real: Bool[Tensor, "batch time"] | None = None,
        counts: Float[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch dim"]:
        return torch.tanh(self.dense(super().forward(x, real, counts)))


class AttentionPooling(Pooling):
    """A weighted mean: one trained query looks at all real tokens."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        # At first every token weighs the same, as in the mean.
        self.query = nn.Parameter(torch.zeros(dim))
        self.softmax = MaskedSoftmax()

    def forward(
        self,
        x: Float[Tensor, "batch time dim"],
        real: Bool[Tensor, "batch time"] | None = None,
        counts: Float[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch dim"]:
        scores = (x @ (self.query / math.sqrt(self.dim)).to(x.dtype))[:, None, None]
        if counts is not None:
            scores = scores + counts.clamp(min=LEAST).log()[:, None, None].to(scores.dtype)
        weights = self.softmax(scores, None if real is None else masks.padding(real))[:, 0]
        if real is not None:
            x = x.masked_fill(~real[:, :, None], 0.0)
        return (weights @ x)[:, 0]


POOLINGS: dict[str, type[Pooling]] = {
    "mean": Mean,
    "first": First,
    "first_tanh": FirstTanh,
    "attention": AttentionPooling,
}
