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
