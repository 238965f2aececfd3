"""Every feed-forward: each token on its own, and the formula of its paper."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from clearhead.nn.dropout import drop_bits_
from clearhead.nn.feedforward import FEED_FORWARDS, Gelu, GeluTanh, Relu, SwiGlu
from clearhead.nn.linear import rounded_rows

BATCH, TIME, DIM, FF_DIM = 2, 5, 8, 12


@pytest.mark.parametrize("name", FEED_FORWARDS)
def test_each_token_is_alone(name: str) -> None:
    feedforward, x = FEED_FORWARDS[name](DIM, FF_DIM), torch.randn(BATCH, TIME, DIM)
    whole = feedforward(x)
    assert whole.shape == x.shape
    for time in range(TIME):
        torch.testing.assert_close(feedforward(x[:, time : time + 1])[:, 0], whole[:, time])


@pytest.mark.parametrize("name", FEED_FORWARDS)
def test_it_bends(name: str) -> None:
    feedforward, x = FEED_FORWARDS[name](DIM, FF_DIM), torch.randn(BATCH, TIME, DIM)
    origin = feedforward(torch.zeros_like(x))
    assert not torch.allclose(feedforward(x) + feedforward(-x), 2 * origin, atol=1e-3)


@pytest.mark.parametrize("name", FEED_FORWARDS)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    feedforward = FEED_FORWARDS[name](DIM, FF_DIM)
    feedforward(torch.randn(BATCH, TIME, DIM)).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in feedforward.parameters())


@pytest.mark.parametrize("name", FEED_FORWARDS)
def test_dropout_acts_in_training_only(name: str) -> None:
    feedforward, x = FEED_FORWARDS[name](DIM, FF_DIM, 0.5), torch.randn(BATCH, TIME, DIM)
    assert not torch.allclose(feedforward(x), feedforward(x))
    feedforward.eval()
    assert torch.equal(feedforward(x), feedforward(x))


def test_the_formulas_are_the_papers() -> None:
    x = torch.randn(BATCH, TIME, DIM)
    relu, gelu, swiglu = Relu(DIM, FF_DIM), Gelu(DIM, FF_DIM), SwiGlu(DIM, FF_DIM)
    torch.testing.assert_close(relu(x), relu.outer(relu.inner(x).clamp(min=0)))
    inner = gelu.inner(x)
    torch.testing.assert_close(gelu(x), gelu.outer(inner * 0.5 * (1 + torch.erf(inner / 2**0.5))))
    tanh = GeluTanh(DIM, FF_DIM)
    inner = tanh.inner(x)
    bent = 0.5 * inner * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (inner + 0.044715 * inner**3)))
    torch.testing.assert_close(tanh(x), tanh.outer(bent))
    gate = F.linear(x, swiglu.gate.weight, swiglu.gate.bias)
    torch.testing.assert_close(swiglu(x), swiglu.outer(gate * torch.sigmoid(gate) * swiglu.inner(x)))


@pytest.mark.parametrize("shape", [(3, 11), (1, 1), (4, 8), (2, 70)])
def test_in_bf16_all_in_one_piece_is_one_after_the_other(shape: tuple[int, int]) -> None:
    """The same products in the same format, so the same bits: forward and backward."""
    torch.manual_seed(0)
    relu, x = Relu(DIM, FF_DIM), torch.randn(*shape, DIM)
    found = []
    for together in (True, False):
        start = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            y = relu(start) if together else relu.outer(relu.bend(start))
        assert y.dtype == torch.bfloat16
        towards = torch.randn(*shape, DIM, generator=torch.Generator().manual_seed(1))
        found.append([y, *torch.autograd.grad((y.float() * towards).sum(), [start, *relu.parameters()])])
    for one, other in zip(*found, strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)


def test_in_bf16_dropped_features_give_and_learn_nothing() -> None:
    torch.manual_seed(0)
    relu, x, p = Relu(DIM, 64, 0.4), torch.randn(3, 21, DIM).bfloat16().float(), 102 / 256
    with torch.no_grad():
        # In numbers that both formats have, so that nothing bends here and not there.
        for parameter in relu.parameters():
            parameter.copy_(parameter.bfloat16())
    start = x.clone().requires_grad_()
    torch.manual_seed(5)
    with torch.autocast("cpu", torch.bfloat16):
        y = relu(start)
    gradients = torch.autograd.grad(y.float().square().sum(), [start, *relu.parameters()])
    torch.manual_seed(5)
    kept = torch.ones(rounded_rows(63), 64, dtype=torch.bfloat16)
    assert drop_bits_(kept, p) == pytest.approx(1 / (1 - p))
    again = x.clone().requires_grad_()
    wide = F.relu(F.linear(again, relu.inner.weight, relu.inner.bias)) * kept[:63].view(3, 21, 64) / (1 - p)
    plain = F.linear(wide, relu.outer.weight, relu.outer.bias)
    expected = torch.autograd.grad(plain.square().sum(), [again, *relu.parameters()])
    for mine, other in zip([y, *gradients], [plain, *expected], strict=True):
        torch.testing.assert_close(mine.float(), other, rtol=0.02, atol=0.03 * float(other.detach().abs().max()))


def test_in_bf16_frozen_layers_learn_nothing_and_pass_gradients_on() -> None:
    relu, x = Relu(DIM, FF_DIM).requires_grad_(False), torch.randn(BATCH, TIME, DIM, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        relu(x).float().sum().backward()
    assert x.grad is not None and x.grad.any() and all(p.grad is None for p in relu.parameters())


def test_in_bf16_it_can_be_switched_off_for_torchs_own_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    relu, x, found = Relu(DIM, FF_DIM, 0.5), torch.randn(BATCH, TIME, DIM), []
    monkeypatch.setattr(relu.dropout, "by_bytes", False)
    for way in (relu, lambda x: relu.outer(F.dropout(relu.inner(x).relu(), 0.5))):
        torch.manual_seed(3)
        with torch.autocast("cpu", torch.bfloat16):
            found.append(way(x))
    assert torch.equal(*found)
