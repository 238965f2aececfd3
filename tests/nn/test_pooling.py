"""The laws of pooling, over every way there is: padding counts for nothing, and order is the encoder's business."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearhead.nn.pooling import POOLINGS, AttentionPooling, FirstTanh, Mean, Pooling

BATCH, TIME, DIM = 3, 5, 8


def some(name: str) -> Pooling:
    pooling = POOLINGS[name](DIM).double()
    for parameter in pooling.parameters():
        parameter.data.normal_()
    return pooling


def ragged() -> tuple[Tensor, Tensor]:
    return torch.randn(BATCH, TIME, DIM, dtype=torch.double), torch.arange(TIME) < torch.tensor([[5], [3], [1]])


@pytest.mark.parametrize("rubbish", [100.0, torch.inf, torch.nan])
@pytest.mark.parametrize("name", POOLINGS)
def test_what_stands_in_padding_changes_nothing(name: str, rubbish: float) -> None:
    pooling, (x, real) = some(name), ragged()
    spoilt = x.masked_fill(~real[..., None], rubbish)
    torch.testing.assert_close(pooling(spoilt, real), pooling(x, real))


@pytest.mark.parametrize("name", POOLINGS)
def test_a_padded_row_is_pooled_as_if_it_were_alone(name: str) -> None:
    pooling, (x, real) = some(name), ragged()
    together = pooling(x, real)
    for row, length in enumerate(real.sum(1).tolist()):
        torch.testing.assert_close(together[row], pooling(x[row : row + 1, :length])[0])


@pytest.mark.parametrize("name", POOLINGS)
def test_all_real_is_the_same_as_no_mask(name: str) -> None:
    pooling, (x, real) = some(name), ragged()
    torch.testing.assert_close(pooling(x, torch.ones_like(real)), pooling(x))


@pytest.mark.parametrize("name", POOLINGS)
def test_gradients_reach_real_tokens_only_and_every_parameter(name: str) -> None:
    pooling, (x, real) = some(name), ragged()
    x.requires_grad_()
    pooling(x, real).square().sum().backward()
    assert x.grad is not None and bool((x.grad[~real] == 0).all())
    assert bool(x.grad[:, 0].abs().sum(-1).gt(0).all())
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in pooling.parameters())


@pytest.mark.parametrize("name", POOLINGS)
def test_a_row_of_nothing_but_padding_is_finite(name: str) -> None:
    x = torch.randn(1, TIME, DIM, dtype=torch.double, requires_grad=True)
    pooled = some(name)(x, torch.zeros(1, TIME, dtype=torch.bool))
    pooled.sum().backward()
    assert pooled.isfinite().all() and x.grad is not None and x.grad.isfinite().all()


@pytest.mark.parametrize("name", POOLINGS)
def test_what_is_first_is_all_that_counts_or_all_count(name: str) -> None:
    pooling, (x, _) = some(name), ragged()
    others = torch.cat([x[:, :1], torch.randn_like(x[:, 1:])], dim=1)
    assert torch.equal(pooling(others), pooling(x)) == POOLINGS[name].is_first


def test_the_first_through_tanh_is_berts_pooler() -> None:
    pooling, (x, _) = some("first_tanh"), ragged()
    assert isinstance(pooling, FirstTanh)
    torch.testing.assert_close(pooling(x), (x[:, 0] @ pooling.dense.weight.T + pooling.dense.bias).tanh())


@pytest.mark.parametrize("name", ["mean", "attention"])
def test_the_order_of_vectors_does_not_matter(name: str) -> None:
    pooling, (x, _) = some(name), ragged()
    torch.testing.assert_close(pooling(x[:, torch.randperm(TIME)]), pooling(x))


def test_attention_pooling_begins_as_the_mean() -> None:
    x, real = ragged()
    torch.testing.assert_close(AttentionPooling(DIM).double()(x, real), Mean(DIM)(x, real))


def test_attention_pooling_equals_a_loop() -> None:
    pooling, (x, real) = some("attention"), ragged()
    assert isinstance(pooling, AttentionPooling)
    for row in range(BATCH):
        seen = x[row][real[row]]
        weights = torch.stack([vector @ pooling.query / DIM**0.5 for vector in seen]).exp()
        wanted = sum(weight * vector for weight, vector in zip(weights, seen, strict=True)) / weights.sum()
        torch.testing.assert_close(pooling(x, real)[row], wanted)


@pytest.mark.parametrize("name", POOLINGS)
def test_a_token_that_counts_for_three_is_as_three_of_it(name: str) -> None:
    pooling, (x, _) = some(name), ragged()
    copies = torch.cat([x, x[:, 1:2], x[:, 1:2]], dim=1)
    counts = torch.ones(x.shape[:2], dtype=x.dtype)
    counts[:, 1] = 3
    torch.testing.assert_close(pooling(x, None, counts), pooling(copies))
    torch.testing.assert_close(pooling(x, None, torch.ones_like(counts)), pooling(x))


@pytest.mark.parametrize("name", [name for name, kind in POOLINGS.items() if not kind.is_first])
def test_a_token_that_counts_for_nothing_is_as_padding(name: str) -> None:
    pooling, (x, real) = some(name), ragged()
    torch.testing.assert_close(pooling(x, None, real.to(x.dtype)), pooling(x, real))
