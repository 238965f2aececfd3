"""A residual stream in, the same stream with its statistics put in order out.

Every norm takes `real`, the mask of tokens that are not padding; one whose statistics run over positions must heed it.
A new norm is one class and one line in NORMS.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn


class Norm(nn.Module, ABC):
    """A scale and a shift per feature, applied after the statistics of the subclass."""

    mixes_time = False
    """Whether a position's output depends on the others at inference: a decoder would see the future through it."""

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "batch time dim"], real: Bool[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch time dim"]: ...


class LayerNorm(Norm):
    """Each token on its own, over its features."""

    def forward(
        self, x: Float[Tensor, "batch time dim"], real: Bool[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        return F.layer_norm(x, (self.dim,), self.weight, self.bias, self.eps)


class RMSNorm(Norm):
    """Each token divided by the root of its mean square; no mean is taken off, and there is no shift."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__(dim, eps)
        del self.bias

    def forward(
        self, x: Float[Tensor, "batch time dim"], real: Bool[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        return F.rms_norm(x, (self.dim,), self.weight, self.eps)


Pool = Callable[[Tensor], Tensor]
"""Sums over the tokens that are here in, sums over all tokens of the batch out."""


def alone(sums: Tensor) -> Tensor:
    """All tokens of the batch are here."""
    return sums


class BatchNorm(Norm):
    """Each feature over all real tokens of the batch; at inference over the running average of training."""

    def __init__(self, dim: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__(dim, eps)
        self.momentum = momentum
        self.pool: Pool = alone
        """Asked while training; whoever deals a batch out to several processes puts another one here."""
        self.running_mean: Tensor
        self.running_var: Tensor
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))

    def forward(
        self, x: Float[Tensor, "batch time dim"], real: Bool[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        mean, var = self.running_mean, self.running_var
        if self.training:
            mean, var, count = moments(x, real, over=(0, 1), pool=self.pool)
            self._remember(mean, var, count)
        return (x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias

    @torch.no_grad()
    def _remember(self, mean: Tensor, var: Tensor, count: Tensor) -> None:
        unbiased = var * (count / (count - 1).clamp(min=1))
        self.running_mean.lerp_(mean.flatten().to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(unbiased.flatten().to(self.running_var.dtype), self.momentum)


class InstanceNorm(Norm):
    """Each feature of each sequence over that sequence's real tokens."""

    mixes_time = True

    def forward(
        self, x: Float[Tensor, "batch time dim"], real: Bool[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        mean, var, _ = moments(x, real, over=(1,))
        return (x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias


class GroupNorm(Norm):
    """Each group of features of each sequence over that sequence's real tokens."""

    mixes_time = True

    def __init__(self, dim: int, eps: float = 1e-5, num_groups: int = 8) -> None:
        super().__init__(dim, eps)
        self.num_groups = math.gcd(dim, num_groups)

    def forward(
        self, x: Float[Tensor, "batch time dim"], real: Bool[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        grouped = x.unflatten(-1, (self.num_groups, -1))
        mean, var, _ = moments(grouped, real, over=(1, 3))
        ordered = ((grouped - mean) * torch.rsqrt(var + self.eps)).flatten(2)
        return ordered * self.weight + self.bias


def moments(
    x: Float[Tensor, "batch time *features"],
    real: Bool[Tensor, "batch time"] | None,
    over: tuple[int, ...],
    pool: Pool = alone,
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and count over some axes, of real tokens only."""
    if real is None:
        real = x.new_ones(x.shape[:2], dtype=torch.bool)
    weight = real.reshape(*real.shape, *[1] * (x.ndim - 2)).to(x.dtype)
    count, total = pool(torch.stack([part.sum(over, keepdim=True) for part in (weight.expand_as(x), x * weight)]))
    count = count.clamp(min=1)
    mean = total / count
    var = pool(((x - mean).square() * weight).sum(over, keepdim=True)) / count
    return mean, var, count


NORMS: dict[str, type[Norm]] = {
    "layer": LayerNorm,
    "rms": RMSNorm,
    "batch": BatchNorm,
    "instance": InstanceNorm,
    "group": GroupNorm,
}
