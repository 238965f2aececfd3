"""What the proofs of the primer share: the shapes, the masks, and what it means for two forms to be equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor

Agree = Callable[[Tensor, Tensor, Iterable[Tensor]], None]


@pytest.fixture(autouse=True)
def seeded_doubles() -> Iterable[None]:
    """Proofs in double precision: a difference of 1e-10 is a mistake, not rounding."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(params=[(1, 1, 4, 1), (2, 5, 8, 2), (3, 4, 12, 3), (2, 6, 8, 8)], ids="batch {0[0]} time {0[1]}".format)
def shape(request: pytest.FixtureRequest) -> tuple[int, int, int, int]:
    """Batch, time, dim and num_heads."""
    return request.param


def everything(batch: int, time: int) -> Tensor:
    return torch.ones(batch, time, time, dtype=torch.bool)


def past(batch: int, time: int) -> Tensor:
    return everything(batch, time).tril()


def real(batch: int, time: int) -> Tensor:
    lengths = 1 + torch.arange(batch) % time
    return everything(batch, time) & (torch.arange(time) < lengths[:, None])[:, None]


def scattered(batch: int, time: int) -> Tensor:
    return (torch.rand(batch, time, time) < 0.5) | torch.eye(time, dtype=torch.bool)


@pytest.fixture(params=[everything, past, real, scattered], ids=lambda mask: mask.__name__)
def allowed(request: pytest.FixtureRequest, shape: tuple[int, int, int, int]) -> Tensor:
    """A mask in which every row sees something; what torch does with other rows depends on its version."""
    return request.param(*shape[:2])


@pytest.fixture
def agree() -> Agree:
    """Assert that two outputs are equal, and so are the gradients of everything they were computed from."""

    def check(ours: Tensor, twin: Tensor, leaves: Iterable[Tensor]) -> None:
        leaves, probe = list(leaves), torch.randn_like(ours)
        torch.testing.assert_close(ours, twin, rtol=0.0, atol=1e-10)
        gradients = (torch.autograd.grad((output * probe).sum(), leaves) for output in (ours, twin))
        for our_gradient, twin_gradient in zip(*gradients, strict=True):
            torch.testing.assert_close(our_gradient, twin_gradient, rtol=0.0, atol=1e-10)

    return check
