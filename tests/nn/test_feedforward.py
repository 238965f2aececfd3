"""Every feed-forward: each token on its own, and the formula of its paper."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from clearhead.nn.feedforward import FEED_FORWARDS, Gelu, GeluTanh, Relu, SwiGlu

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
