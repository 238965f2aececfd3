"""A stream and linear layers in, what each of them makes of it out, with one product for all of them in bf16.

On a CPU each new number of rows makes oneDNN compile another program for a product in bf16, which takes ten times as
long as the product and megabytes of memory; and batches of sentences hardly ever have the same number of tokens. So
rows are filled up with zeros to one of a few numbers. Other formats and devices take torch's own way.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LEAST_STEP = 32
STEPS = 16
"""How many numbers of rows there are between one power of two and the next."""
HAS_ONEDNN = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
"""Whether oneDNN can be asked for products in bf16: it refuses where a CPU has no AVX-512, or the like."""


def rounded_rows(rows: int) -> int:
    """The least of the few numbers of rows that is enough, never more than a sixteenth and some too many.

    >>> [rounded_rows(rows) for rows in (1, 32, 33, 1024, 1025, 4000)]
    [32, 32, 64, 1024, 1088, 4096]
    """
    step = max(LEAST_STEP, 2 ** (rows - 1).bit_length() // (2 * STEPS))
    return -(-rows // step) * step


def is_narrow(x: Tensor) -> bool:
    """Whether products with this are in bf16 on a CPU."""
    if x.device.type != "cpu":
        return False
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
    return dtype == torch.bfloat16


def filled(
    x: Float[Tensor, "rows width"], rows: int, dtype: torch.dtype = torch.bfloat16
) -> Float[Tensor, "{rows} width"]:
    """In a number format, with rows of zeros at the end; the same memory if nothing is to be done."""
    if x.dtype == dtype and len(x) == rows and x.is_contiguous():
        return x
    whole = torch.empty(rows, x.shape[1], dtype=dtype, device=x.device)
    whole[: len(x)] = x
    whole[len(x) :] = 0
    return whole


def project(x: Float[Tensor, "*batch width"], *layers: nn.Linear) -> tuple[Tensor, ...]:
    """What each of these layers makes of the same vectors."""
    if not is_narrow(x):
        return tuple(layer(x) for layer in layers)
    weight = _joined([layer.weight for layer in layers])
    bias = None if layers[0].bias is None else _joined([layer.bias for layer in layers])
    with torch.autocast("cpu", enabled=False):
        return _Products.apply(x, weight, bias, [layer.out_features for layer in layers])


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


class Linear(nn.Linear):
    """torch's, with a product of few numbers of rows in bf16."""

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch wide"]:
        return project(x, self)[0] if is_narrow(x) else F.linear(x, self.weight, self.bias)


def product(
    x: Float[Tensor, "rows width"],
    weight: Float[Tensor, "wide width"],
    bias: Float[Tensor, "wide"] | None,
    bend: Literal["none", "relu"] = "none",
) -> Float[Tensor, "rows wide"]:
    """x · weightᵀ + bias, bent; where oneDNN is asked itself, bias and bend cost no pass over what is made."""
    if HAS_ONEDNN:
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, bend, [], None)
    made = F.linear(x, weight, bias)
    return made if bend == "none" else made.relu_()


class _Products(torch.autograd.Function):
    """x · weightᵀ + bias, cut into the parts of several layers."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Tensor | None, widths: list[int]) -> tuple[Tensor, ...]:
        rows = x.numel() // x.shape[-1]
        flat = filled(x.reshape(rows, -1), rounded_rows(rows))
        narrow = weight.bfloat16()
        y = product(flat, narrow, None if bias is None else bias.bfloat16())
        context.save_for_backward(flat, narrow)
        context.facts = x.shape, x.dtype, weight.dtype, bias is not None, widths
        return y[:rows].view(*x.shape[:-1], -1).split(widths, -1)

    @staticmethod
    @once_differentiable
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        flat, narrow = context.saved_tensors
        shape, dtype, weight_dtype, is_biased, widths = context.facts
        rows = shape.numel() // shape[-1]
        if len(grads) == 1:
            by_y = filled(grads[0].reshape(rows, -1), len(flat))
        else:
            by_y = torch.empty(len(flat), sum(widths), dtype=torch.bfloat16)
            for part, grad in zip(by_y[:rows].split(widths, -1), grads, strict=True):
                part.copy_(grad.reshape(rows, -1))
            by_y[rows:] = 0
        by_x = (by_y @ narrow)[:rows].view(shape).to(dtype) if context.needs_input_grad[0] else None
        by_weight = (by_y.t() @ flat).to(weight_dtype) if context.needs_input_grad[1] else None
        # Added up in fp32 all the same, and several times as fast as when asked to be.
        by_bias = by_y.sum(0).to(weight_dtype) if is_biased and context.needs_input_grad[2] else None
        return by_x, by_weight, by_bias, None
