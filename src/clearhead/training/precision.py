"""A name in, a context for forward passes out: which number format the products are computed in.

A new precision is one line in PRECISIONS.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from clearhead import tiles

PRECISIONS: dict[str, torch.dtype | None] = {"fp32": None, "bf16": torch.bfloat16}
AUTO = "auto"
BF16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
"""As torch calls what CPUs multiply bf16 with; oneDNN says that it supports bf16 also where it must emulate it."""


def settled(precision: str, device: torch.device) -> str:
    """What `auto` is on this machine: bf16 where it has instructions for that, else fp32."""
    if precision != AUTO:
        return precision
    return "fp32" if is_slow("bf16", device) else "bf16"


def computing_in(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """The context in which a model computes; weights and optimizer state stay in fp32 throughout."""
    dtype = PRECISIONS[precision]
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)


def is_slow(precision: str, device: torch.device) -> bool:
    """Whether this machine emulates the format, which takes tens of times as long as fp32."""
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = device.type != "cpu" or _cpu_has_bf16()
    return PRECISIONS[precision] is torch.bfloat16 and not native


def _cpu_has_bf16() -> bool:
    # Without tiles, a CPU that has some takes twice as long in bf16 as in fp32.
    if tiles.were_left() or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    # Older versions of torch cannot be asked for the instructions.
    ask = getattr(torch.cpu, "get_capabilities", None)
    return ask is None or any(ask().get(name) for name in BF16_INSTRUCTIONS)
