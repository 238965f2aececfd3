"""Several checkpoints' weights in, their mean out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor


def average(states: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each weight; summed in double precision, one state in memory at a time."""
    sums: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    count = 0
    for state in states:
        count += 1
        for name, tensor in state.items():
            kinds[name] = tensor.dtype
            sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
    return {name: (total / count).to(kinds[name]) for name, total in sums.items()}
