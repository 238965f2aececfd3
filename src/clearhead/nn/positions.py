"""Where a token stands: three do-nothing seams, `embed` once, `rotate` and `bias` per layer; a scheme overrides one.

A new scheme is one class and one line in POSITIONS.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from clearhead.errors import ConfigError, DataError


class Positions(nn.Module):
    """No positions at all: tokens are a bag, and permuting them permutes the output."""

    def __init__(self, *, dim: int, num_heads: int, head_dim: int, max_len: int) -> None:
        super().__init__()
        self.dim, self.num_heads, self.head_dim, self.max_len = dim, num_heads, head_dim, max_len

    def embed(
        self, x: Float[Tensor, "batch time dim"], offset: int = 0, places: Int[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        """Add to the embeddings of tokens that start at `offset`, or stand at `places` where each has its own."""
        return x

    def rotate(
        self,
        x: Float[Tensor, "batch heads time head_dim"],
        offset: int = 0,
        at: Float[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch heads time head_dim"]:
        """Turn the queries or keys of tokens that start at `offset`, or that stand `at` positions of their own."""
        return x

    def bias(
        self,
        query_len: int,
        key_len: int,
        device: torch.device | None = None,
        at: Float[Tensor, "batch key"] | None = None,
    ) -> Float[Tensor, "*batch heads query key"] | None:
        """What is added to the scores of the last `query_len` of `key_len` positions, which may stand `at` others."""
        return None


def waves(length: int, dim: int, base: float = 10_000.0) -> Float[Tensor, "{length} dim"]:
    """The paper's table: even columns sine, odd columns cosine, wavelengths from 2π to 2π·10000.

    >>> waves(2, 4)[0].tolist()
    [0.0, 1.0, 0.0, 1.0]
    """
    angles = turns(length, dim + dim % 2, base)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :dim]


def turns(length: int, dim: int, base: float = 10_000.0) -> Float[Tensor, "{length} half"]:
    """The angle of each position in each of `dim / 2` planes."""
    return torch.arange(length).float()[:, None] * rates(dim, base)


def rates(dim: int, base: float = 10_000.0) -> Float[Tensor, "half"]:
    """How fast each of `dim / 2` planes turns, from one radian a position to one in `base`."""
    return torch.exp(torch.arange(0, dim, 2) * (-math.log(base) / dim))


class Sinusoidal(Positions):
    """Fixed waves added to the embeddings (Vaswani et al. 2017)."""

    def __init__(self, *, dim: int, num_heads: int, head_dim: int, max_len: int) -> None:
        super().__init__(dim=dim, num_heads=num_heads, head_dim=head_dim, max_len=max_len)
        self.table: Tensor
        self.register_buffer("table", waves(max_len, dim), persistent=False)

    def embed(
        self, x: Float[Tensor, "batch time dim"], offset: int = 0, places: Int[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        end = offset + x.shape[1]
        table = self.table if end <= len(self.table) else waves(end, self.dim).to(x.device)
        return x + (table[offset:end] if places is None else table[places]).to(x.dtype)


class Learned(Positions):
    """One trained vector per position, added to the embeddings; nothing exists past `max_len`."""

    def __init__(self, *, dim: int, num_heads: int, head_dim: int, max_len: int) -> None:
        super().__init__(dim=dim, num_heads=num_heads, head_dim=head_dim, max_len=max_len)
        self.weight = nn.Parameter(torch.empty(max_len, dim))

    def embed(
        self, x: Float[Tensor, "batch time dim"], offset: int = 0, places: Int[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        end = offset + x.shape[1]
        if end > self.max_len:
            raise DataError(
                f"a sequence of {end} tokens is longer than the {self.max_len} learned positions of this model: "
                "shorten it, or train with a larger max_len"
            )
        return x + (self.weight[offset:end] if places is None else self.weight[places]).to(x.dtype)


class Rotary(Positions):
    """Queries and keys are turned by their position, so a score depends on distance only (Su et al. 2021)."""

    by_hand = True
    """Whether the gradient is written by hand: half the passes over memory."""

    def __init__(self, *, dim: int, num_heads: int, head_dim: int, max_len: int) -> None:
        super().__init__(dim=dim, num_heads=num_heads, head_dim=head_dim, max_len=max_len)
        if head_dim < 2:
            raise ConfigError(
                f"rotary positions turn pairs of features, and a head_dim of {head_dim} has none: use fewer heads"
            )
        self.cos: Tensor
        self.sin: Tensor
        cos, sin = self._tables(max_len)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def _tables(self, length: int) -> tuple[Tensor, Tensor]:
        # An odd head_dim keeps its last column unturned.
        angles = turns(length, self.head_dim - self.head_dim % 2)
        return angles.cos(), angles.sin()

    def rotate(
        self,
        x: Float[Tensor, "batch heads time head_dim"],
        offset: int = 0,
        at: Float[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch heads time head_dim"]:
        end, half = offset + x.shape[2], self.head_dim // 2
        if at is not None:
            angles = at.float()[:, None, :, None] * rates(2 * half).to(x.device)
            cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        else:
            cos, sin = (self.cos, self.sin) if end <= len(self.cos) else (t.to(x.device) for t in self._tables(end))
            cos, sin = cos[offset:end].to(x.dtype), sin[offset:end].to(x.dtype)
        if x.requires_grad and self.by_hand:
            return _Turn.apply(x, cos, sin)
        left, right, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return torch.cat([left * cos - right * sin, right * cos + left * sin, rest], dim=-1)


class _Turn(torch.autograd.Function):
    """The same in one piece of memory; the gradient is turned back."""

    @staticmethod
    def forward(context: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        context.save_for_backward(cos, sin)
        return _turned(x, cos, sin, 1.0)

    @staticmethod
    @once_differentiable
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = context.saved_tensors
        return _turned(grads[0], cos, sin, -1.0), None, None


def _turned(x: Tensor, cos: Tensor, sin: Tensor, way: float) -> Tensor:
    half = cos.shape[-1]
    found = torch.empty_like(x)
    left, right = x[..., :half], x[..., half : 2 * half]
    torch.mul(left, cos, out=found[..., :half]).addcmul_(right, sin, value=-way)
    torch.mul(right, cos, out=found[..., half : 2 * half]).addcmul_(left, sin, value=way)
    found[..., 2 * half :] = x[..., 2 * half :]
    return found


class Alibi(Positions):
    """Scores fall with distance, at a different slope in each head (Press et al. 2022)."""

    def __init__(self, *, dim: int, num_heads: int, head_dim: int, max_len: int) -> None:
        super().__init__(dim=dim, num_heads=num_heads, head_dim=head_dim, max_len=max_len)
        self.slopes: Tensor
        self.register_buffer("slopes", torch.tensor(alibi_slopes(num_heads)), persistent=False)

    def bias(
        self,
        query_len: int,
        key_len: int,
        device: torch.device | None = None,
        at: Float[Tensor, "batch key"] | None = None,
    ) -> Float[Tensor, "*batch heads query key"] | None:
        if at is not None:
            apart = (at[:, None, None, :] - at[:, None, key_len - query_len :, None]).abs()
            return -self.slopes.to(device)[:, None, None] * apart
        keys = torch.arange(key_len, device=device)
        distance = (keys[None, :] - keys[key_len - query_len :, None]).abs()
        return -self.slopes.to(device)[:, None, None] * distance


def alibi_slopes(num_heads: int) -> list[float]:
    """A geometric series for a power of two; other counts borrow every other slope of the next power.

    >>> alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    power = 2 ** math.floor(math.log2(num_heads))
    first = [2.0 ** (-8.0 * (head + 1) / power) for head in range(power)]
    between = [2.0 ** (-4.0 * (head + 1) / power) for head in range(0, 2 * power, 2)]
    return (first + between)[:num_heads]


POSITIONS: dict[str, type[Positions]] = {
    "none": Positions,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rotary": Rotary,
    "alibi": Alibi,
}
