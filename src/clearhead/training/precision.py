"""A name in, a context for forward passes out: which number format the products are computed in.

A new precision is one line in PRECISIONS.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

PRECISIONS: dict[str, torch.dtype | None] = {"fp32": None, "bf16": torch.bfloat16}


def computing_in(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """The context in which a model computes; weights and optimizer state stay in fp32 throughout."""
    dtype = PRECISIONS[precision]
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)


def is_slow(precision: str, device: torch.device) -> bool:
    """Whether this machine emulates the format, which takes tens of times as long as fp32."""
    emulated = device.type == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return PRECISIONS[precision] is torch.bfloat16 and emulated
