"""What the tests of the parts share: a fixed seed, and small stacks whose every number matters."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from clearhead.nn.initialise import initialise
from clearhead.nn.norms import Norm
from clearhead.nn.stacks import Stack, build_stack

SMALL = {"dim": 16, "num_heads": 4, "ff_dim": 24, "num_layers": 2, "max_len": 12, "positions": "none"}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def stir(model: nn.Module) -> None:
    """Give norms and biases values of their own: ones and zeros would hide mistakes."""
    for module in model.modules():
        if isinstance(module, Norm):
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
                tensor.data.uniform_(0.5, 1.5) if name in {"weight", "running_var"} else tensor.data.normal_(std=0.3)
        elif isinstance(module, nn.Linear) and module.bias is not None:
            module.bias.data.normal_(std=0.3)


@pytest.fixture
def new_stack() -> Callable[..., Stack]:
    """Build a small stack in double precision, so that laws hold to the last digits, ready for inference."""

    def make(**settings: object) -> Stack:
        torch.manual_seed(0)
        stack = build_stack(**{**SMALL, **settings})
        initialise(stack)
        stir(stack)
        return stack.double().eval()

    return make
