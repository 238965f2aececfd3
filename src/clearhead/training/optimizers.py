"""Named parameters in, an optimizer out; its state is read and written by parameter name, to be stored safely.

A new optimizer is one function and one line in OPTIMIZERS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

Optimizer = torch.optim.Optimizer
Betas = tuple[float, float]


def adam(model: nn.Module, *, betas: Betas, eps: float, weight_decay: float) -> Optimizer:
    """Adam as in the paper; weight decay, if any, is added to the gradient."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.Adam(parameters, lr=0.0, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)


def adamw(model: nn.Module, *, betas: Betas, eps: float, weight_decay: float) -> Optimizer:
    """Adam with decoupled weight decay, on matrices only: norms and biases are left alone."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=0.0, betas=betas, eps=eps, fused=True)


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"adam": adam, "adamw": adamw}


def state_tensors(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Everything the optimizer remembers, as `parameter/name` → tensor, shards as they are."""
    return {
        f"{parameter}/{key}": torch.as_tensor(value)
        for parameter, weight in model.named_parameters()
        for key, value in optimizer.state.get(weight, {}).items()
    }


def restore_tensors(optimizer: Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `state_tensors` took out; each already lies where it belongs."""
    weights = dict(model.named_parameters())
    for name, value in tensors.items():
        parameter, key = name.rsplit("/", 1)
        optimizer.state[weights[parameter]][key] = value
