"""Each token in, each token out, on its own: widened, bent, narrowed.

A new one is one class and one line in FEED_FORWARDS.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.nn.dropout import Dropout
from clearhead.nn.linear import Linear


class FeedForward(nn.Module, ABC):
    """Two linear maps with a bend between them, after which features are dropped; the subclass says which."""

    def __init__(self, dim: int, ff_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = Linear(dim, ff_dim)
        self.outer = Linear(ff_dim, dim)
        self.dropout = Dropout(dropout)

    @abstractmethod
    def bend(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time ff_dim"]: ...

    def forward(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time dim"]:
        return self.outer(self.bend(x))


class Relu(FeedForward):
    """max(0, xW + b), as in the paper."""

    def bend(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time ff_dim"]:
        return self.dropout.of_relu(self.inner(x))


class Gelu(FeedForward):
    """The smooth bend of BERT, GPT and ViT."""

    def bend(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time ff_dim"]:
        return self.dropout(F.gelu(self.inner(x)))


class GeluTanh(FeedForward):
    """GELU by way of tanh, as GPT-2 computes it: some ten-thousandths away from the exact one."""

    def bend(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time ff_dim"]:
        return self.dropout(F.gelu(self.inner(x), approximate="tanh"))


class Silu(FeedForward):
    """x · σ(x), also called swish: the bend of Marian."""

    def bend(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time ff_dim"]:
        return self.dropout(F.silu(self.inner(x)))


class SwiGlu(FeedForward):
    """One widened copy gates the other (Shazeer 2020): a third matrix, so use two thirds of the usual `ff_dim`."""

    def __init__(self, dim: int, ff_dim: int, dropout: float = 0.0) -> None:
        super().__init__(dim, ff_dim, dropout)
        self.gate = Linear(dim, ff_dim)

    def bend(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time ff_dim"]:
        return self.dropout(F.silu(self.gate(x)) * self.inner(x))


FEED_FORWARDS: dict[str, type[FeedForward]] = {
    "relu": Relu,
    "gelu": Gelu,
    "gelu_tanh": GeluTanh,
    "silu": Silu,
    "swiglu": SwiGlu,
}
