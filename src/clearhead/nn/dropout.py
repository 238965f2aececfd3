"""Features in, the same features with some put to zero out, while training: torch's dropout, at a fraction of its cost.

On a CPU torch draws a random number for every feature, which takes longer than most layers. One byte is enough: a
64-bit draw makes eight decisions. The share that is dropped is thereby a multiple of 1/256, and what remains is scaled
for just that share, so the expected value is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int8
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LEVELS = 256
BITS_AT_ONCE = 2**20
"""Features whose masks exist at the same time."""


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

    def of_relu(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The same after a ReLU: drawn by bytes, the backward pass needs one tensor for both, which is the result."""
        if not self.training or self.p == 0.0 or not self.by_bytes or x.device.type != "cpu":
            return self(F.relu(x))
        return _DroppedRelu.apply(x, self.p)

    def onto(self, x: Float[Tensor, "*shape"], h: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """A stream and what is left of what is added to it; in one go where that is in bf16 on a CPU."""
        is_mixed = (x.dtype, h.dtype) == (torch.float32, torch.bfloat16)
        if not self.training or self.p == 0.0 or not self.by_bytes or x.device.type != "cpu" or not is_mixed:
            return x + self(h)
        return _DroppedSum.apply(x, h, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class _DroppedRelu(torch.autograd.Function):
    """A ReLU and dropout; what is above zero in the result has passed both, and nothing else has."""

    @staticmethod
    def forward(context: Any, x: Tensor, p: float) -> Tensor:
        y = keep_mask(x, p).mul_(x).clamp_min_(0.0)
        context.save_for_backward(y)
        context.scale = _scale(p)
        return y

    @staticmethod
    @once_differentiable
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (y,) = context.saved_tensors
        return torch.ops.aten.threshold_backward(grads[0], y, 0.0).mul_(context.scale), None


class _DroppedSum(torch.autograd.Function):
    """x + dropout(h), h in bf16; a byte for each feature is kept, and no product is made of it."""

    @staticmethod
    def forward(context: Any, x: Tensor, h: Tensor, p: float) -> Tensor:
        kept = _kept_bytes(h.shape, p)
        context.save_for_backward(kept)
        context.scale = _scale(p)
        return torch.add(x, _masked(h, kept), alpha=context.scale)

    @staticmethod
    @once_differentiable
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (kept,) = context.saved_tensors
        by_h = torch.empty_like(grads[0], dtype=torch.bfloat16)
        torch.mul(grads[0], context.scale, out=by_h)
        by_h.view(torch.int16).bitwise_and_(kept.to(torch.int16))
        return grads[0], by_h, None


def _masked(x: Float[Tensor, "*shape"], kept: Int8[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return (x.view(torch.int16) & kept.to(torch.int16)).view(torch.bfloat16)


def _kept_bytes(shape: torch.Size, p: float) -> Int8[Tensor, "*shape"]:
    """All bits of a byte set where a feature is kept, none where it is dropped."""
    return drawn_bytes(shape).ge_(_dropped(p) - LEVELS // 2).neg_()


def drop_bits_(x: Float[Tensor, "*shape"], p: float) -> float:
    """Put features to zero in place, in bf16; what is left is to be multiplied by what comes back.

    Bytes are quickly made into masks of bits and slowly into numbers, and a few of them at a time stay in the cache.
    """
    for part in x.view(-1).view(torch.int16).split(BITS_AT_ONCE):
        part.bitwise_and_(_kept_bytes(part.shape, p).to(torch.int16))
    return _scale(p)


def keep_mask(like: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """Zero with probability `p`, rounded to 1/256, and what keeps the mean at one otherwise."""
    mask = torch.empty_like(like, memory_format=torch.contiguous_format, requires_grad=False)
    mask.copy_(drawn_bytes(like.shape))
    return mask.ge_(_dropped(p) - LEVELS // 2).mul_(_scale(p))


def drawn_bytes(shape: torch.Size) -> Int8[Tensor, "*shape"]:
    """Bytes by chance, as torch's seed decides: it seeds a generator that takes half as long as torch's own."""
    seed = int(torch.empty((), dtype=torch.int64).random_())
    words = np.random.SFC64(seed).random_raw(-(-shape.numel() // 8))
    return torch.from_numpy(words.view(np.int8)[: shape.numel()]).view(shape)


def _dropped(p: float) -> int:
    """How many of 256 values of a byte drop a feature."""
    return min(max(round(p * LEVELS), 1), LEVELS - 1)


def _scale(p: float) -> float:
    """What a feature that is left is multiplied by."""
    return LEVELS / (LEVELS - _dropped(p))
