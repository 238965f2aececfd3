"""What the tests of the parts share: a fixed seed, and small stacks whose every number matters."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.shared.weights import stir

from clearhead.nn.initialise import initialise
from clearhead.nn.stacks import Stack, build_stack

SMALL = {"dim": 16, "num_heads": 4, "ff_dim": 24, "num_layers": 2, "max_len": 12, "positions": "none"}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


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
