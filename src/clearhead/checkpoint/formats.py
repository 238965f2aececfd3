"""Weights ↔ the number format they are stored in: all of them in one float type, or matrices in int8.

An int8 matrix has scales beside it in the file, a float32 for each row: `NAME` times `NAME_scale` is what was stored,
to half a scale. What is no matrix is small and matters much; it stays in float16.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from clearhead.errors import DataError, StorageError, choose
from clearhead.storage import SCALES

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "int8": torch.int8}
"""In which number formats weights may be stored; a loaded model computes in float32."""
LARGEST = 127
"""Of an int8, for both signs."""


def stored_as(tensors: Mapping[str, Tensor], dtype: str) -> dict[str, Tensor]:
    """Weights in the number format they are to be stored in, or an error if one of them does not fit into it."""
    wanted = choose(DTYPES, dtype, "number format")
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        own = _own_type(tensor, wanted)
        if not tensor.is_floating_point():
            stored[name] = tensor
        elif own.is_floating_point:
            stored[name] = tensor.to(own)
            if not torch.equal(stored[name].isfinite(), tensor.isfinite()):
                raise _unfit(dtype, name, "too large")
        else:
            stored[name], stored[name + SCALES] = rounded(tensor)
            if not stored[name + SCALES].isfinite().all():
                raise _unfit(dtype, name, "not finite")
    return stored


def restored(tensors: Mapping[str, Tensor], dtype: str, where: Path) -> dict[str, Tensor]:
    """Stored weights as numbers to compute with, or an error if they are not in the number format they should be in."""
    wanted = choose(DTYPES, dtype, "number format")
    found = dict(tensors)
    for name, tensor in tensors.items():
        if name.endswith(SCALES) or not (tensor.is_floating_point() or tensor.dtype is torch.int8):
            continue  # Scales without a matrix are left over, and met as any tensor that a model has not.
        if tensor.dtype is not _own_type(tensor, wanted):
            raise _other_format(where, f"{name} is {tensor.dtype}, not {_own_type(tensor, wanted)}")
        if tensor.dtype is torch.int8:
            found[name] = tensor * _checked(found.pop(name + SCALES, None), tensor, name + SCALES, where)
    return found


def rounded(matrix: Float[Tensor, "*rows width"]) -> tuple[Int8[Tensor, "*rows width"], Float[Tensor, "*rows 1"]]:
    """A matrix to the nearest of 255 steps in each row, and how long a step is."""
    # A scale is never zero: then nothing is divided by zero, and a row of zeros is zeros again.
    steps = (matrix.float().abs().amax(-1, keepdim=True) / LARGEST).clamp(min=torch.finfo(torch.float32).tiny)
    return (matrix / steps).round().to(torch.int8), steps


def _own_type(tensor: Tensor, wanted: torch.dtype) -> torch.dtype:
    return torch.float16 if wanted is torch.int8 and tensor.ndim < 2 else wanted


def _unfit(dtype: str, name: str, fault: str) -> DataError:
    return DataError(f"the weights do not fit into {dtype}: {name} has values that are {fault}; use bfloat16")


def _checked(scales: Tensor | None, matrix: Tensor, name: str, where: Path) -> Tensor:
    shape = (*matrix.shape[:-1], 1)
    if scales is None:
        raise _other_format(where, f"{name} is missing")
    if scales.dtype is not torch.float32 or scales.shape != shape:
        raise _other_format(where, f"{name} is {scales.dtype} {tuple(scales.shape)}, not torch.float32 {shape}")
    if not (scales.isfinite() & (scales > 0)).all():
        raise _other_format(where, f"{name} has values that are not finite and above zero")
    return scales


def _other_format(where: Path, what: str) -> StorageError:
    return StorageError(f"{where} is not in the number format its config.json names: {what}")
