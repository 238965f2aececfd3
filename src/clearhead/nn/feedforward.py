"""Each token in, each token out, on its own: widened, bent, narrowed.

A new one is one class and one line in FEED_FORWARDS.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from clearhead.nn.dropout import Dropout, drop_bits_
from clearhead.nn.linear import Linear, filled, is_narrow, product, rounded_rows


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

    def forward(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time dim"]:
        inner, outer, dropout = self.inner, self.outer, self.dropout
        if not is_narrow(x) or not dropout.by_bytes:
            return super().forward(x)
        with torch.autocast("cpu", enabled=False):
            p = dropout.p if dropout.training else 0.0
            return _NarrowRelu.apply(x, inner.weight, inner.bias, outer.weight, outer.bias, p)


class _NarrowRelu(torch.autograd.Function):
    """The same in bf16 on a CPU, where each pass over what was widened costs a tenth of its product.

    It exists once: bent as it is made, features dropped and gradients held back in place. What is left of dropped
    features is scaled with the weights that narrow it.
    """

    @staticmethod
    def forward(
        context: Any, x: Tensor, inner: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor, p: float
    ) -> Tensor:
        rows = x.numel() // x.shape[-1]
        flat, narrow_inner = filled(x.reshape(rows, -1), rounded_rows(rows)), inner.bfloat16()
        wide = product(flat, narrow_inner, inner_bias.bfloat16(), "relu")
        scale = drop_bits_(wide, p) if p else 1.0
        narrow_outer = outer.bfloat16() * scale if p else outer.bfloat16()
        y = product(wide, narrow_outer, outer_bias.bfloat16())
        context.save_for_backward(flat, narrow_inner, wide, narrow_outer)
        context.facts = x.shape, x.dtype, inner.dtype, scale
        return y[:rows].view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        flat, inner, wide, outer = context.saved_tensors
        shape, dtype, weight_dtype, scale = context.facts
        rows, needed = shape.numel() // shape[-1], context.needs_input_grad
        by_y = filled(grads[0].reshape(rows, -1), len(flat))
        by_outer = (by_y.t() @ wide).to(weight_dtype).mul_(scale) if needed[3] else None
        by_outer_bias = by_y.sum(0).to(weight_dtype) if needed[4] else None
        by_wide = by_y @ outer
        # What is above zero has passed bend and dropout, and nothing else has.
        torch.ops.aten.threshold_backward.grad_input(by_wide, wide, 0.0, grad_input=by_wide)
        by_inner = (by_wide.t() @ flat).to(weight_dtype) if needed[1] else None
        by_inner_bias = by_wide.sum(0).to(weight_dtype) if needed[2] else None
        by_x = (by_wide @ inner)[:rows].view(shape).to(dtype) if needed[0] else None
        return by_x, by_inner, by_inner_bias, by_outer, by_outer_bias, None


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
