"""Products in bf16 with few numbers of rows, beside torch's own."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.nn import linear
from clearhead.nn.linear import LEAST_STEP, Linear, filled, project, rounded_rows

WIDTH, WIDTHS = 8, (6, 4, 4)


def layers(*, bias: bool = True) -> list[Linear]:
    torch.manual_seed(0)
    return [Linear(WIDTH, width, bias) for width in WIDTHS]


def by_torch(x: Tensor, layer: nn.Linear) -> Tensor:
    return F.linear(x, layer.weight, layer.bias)


def test_rows_are_rounded_up_to_few_numbers_and_never_by_much() -> None:
    rounded = [rounded_rows(rows) for rows in range(1, 5000)]
    assert all(rows <= more < rows * 1.07 + LEAST_STEP for rows, more in enumerate(rounded, start=1))
    assert rounded == sorted(rounded)
    assert all(rounded_rows(more) == more for more in rounded)
    assert len(set(rounded)) < 70


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3, 11), (4, 8), (1, 1), (5,)])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_in_bf16_each_layer_gives_and_learns_what_torchs_would(count: int, shape: tuple[int, ...], bias: bool) -> None:
    chosen = layers(bias=bias)[:count]
    torch.manual_seed(1)
    x = torch.randn(*shape, WIDTH)
    weights = [p for layer in chosen for p in layer.parameters()]
    towards = [torch.randn(*shape, layer.out_features) for layer in chosen]
    found = []
    for narrow in (True, False):
        start = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            made = project(start, *chosen) if narrow else tuple(by_torch(start, layer) for layer in chosen)
        assert all(y.dtype == (torch.bfloat16 if narrow else torch.float32) for y in made)
        loss = sum((y.float() * t).sum() for y, t in zip(made, towards, strict=True))
        found.append([*(y.float() for y in made), *torch.autograd.grad(loss, [start, *weights])])
    for mine, other in zip(*found, strict=True):
        assert mine.shape == other.shape and mine.dtype == other.dtype
        torch.testing.assert_close(mine, other, rtol=0.02, atol=0.03 * float(other.detach().abs().max()))


def test_outside_bf16_several_layers_are_just_each_of_them() -> None:
    x = torch.randn(2, 3, WIDTH)
    for made, layer in zip(project(x, *layers()), layers(), strict=True):
        assert torch.equal(made, by_torch(x, layer))


def test_a_layer_alone_takes_the_same_way_and_needs_no_gradient() -> None:
    layer = layers()[0]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        made = layer(torch.ones(7, WIDTH))
    assert made.shape == (7, layer.out_features) and made.dtype == torch.bfloat16 and not made.requires_grad


def test_filling_up_adds_zeros_and_copies_only_where_it_must() -> None:
    x = torch.ones(5, 2, dtype=torch.bfloat16)
    assert filled(x, 5) is x
    assert filled(x.float(), 5).dtype == torch.bfloat16
    more = filled(x, 8)
    assert torch.equal(more[:5], x) and not more[5:].any()


def test_padded_rows_are_not_seen_in_gradients_of_frozen_layers() -> None:
    layer = layers()[0].requires_grad_(False)
    x = torch.ones(3, WIDTH, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        layer(x).float().sum().backward()
    assert x.grad is not None and layer.weight.grad is None
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(3, -1), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("bend", ["none", "relu"])
@pytest.mark.parametrize("biased", [True, False])
def test_without_onednn_a_product_is_the_same(
    bend: Literal["none", "relu"], biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight, bias = (torch.randn(shape).bfloat16() for shape in ((5, WIDTH), (6, WIDTH), (6,)))
    found = []
    for here in (linear.HAS_ONEDNN, False):
        monkeypatch.setattr(linear, "HAS_ONEDNN", here)
        found.append(linear.product(x, weight, bias if biased else None, bend))
    torch.testing.assert_close(*found)
    assert bool((found[0] < 0).any()) is (bend == "none")
