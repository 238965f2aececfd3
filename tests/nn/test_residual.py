"""Every residual arrangement against the one line that defines it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from clearhead.nn.norms import BatchNorm, LayerNorm
from clearhead.nn.residual import RESIDUALS, NoResidual, PostNorm, PreNorm

BATCH, TIME, DIM = 2, 5, 8


def test_the_arrangements_are_what_their_names_say() -> None:
    x, norm, sublayer = torch.randn(BATCH, TIME, DIM), LayerNorm(DIM), nn.Linear(DIM, DIM)
    torch.testing.assert_close(PreNorm(norm, 0.0)(x, sublayer), x + sublayer(norm(x)))
    torch.testing.assert_close(PostNorm(norm, 0.0)(x, sublayer), norm(x + sublayer(x)))
    torch.testing.assert_close(NoResidual(norm, 0.0)(x, sublayer), norm(sublayer(x)))


@pytest.mark.parametrize("name", RESIDUALS)
def test_needs_final_norm_says_whether_the_stream_leaves_unnormed(name: str) -> None:
    residual = RESIDUALS[name](LayerNorm(DIM), 0.0)
    output = residual(3 * torch.randn(BATCH, TIME, DIM) + 1, nn.Linear(DIM, DIM))
    normed = torch.allclose(output.mean(-1), torch.zeros(BATCH, TIME), atol=1e-5)
    assert normed == (not residual.needs_final_norm)


@pytest.mark.parametrize("name", RESIDUALS)
def test_the_norm_hears_which_tokens_are_real(name: str) -> None:
    real = torch.arange(TIME) < torch.tensor([[5], [2]])
    x, sublayer = torch.randn(BATCH, TIME, DIM), nn.Linear(DIM, DIM)
    rubbish = torch.where(real[..., None], x, torch.full_like(x, 100.0))
    outputs = [RESIDUALS[name](BatchNorm(DIM), 0.0)(tokens, sublayer, real)[real] for tokens in (x, rubbish)]
    torch.testing.assert_close(*outputs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", RESIDUALS)
def test_dropout_acts_on_the_branch_in_training_only(name: str) -> None:
    residual, x, sublayer = RESIDUALS[name](LayerNorm(DIM), 0.5), torch.randn(BATCH, TIME, DIM), nn.Linear(DIM, DIM)
    assert not torch.allclose(residual(x, sublayer), residual(x, sublayer))
    residual.eval()
    torch.testing.assert_close(residual(x, sublayer), RESIDUALS[name](LayerNorm(DIM), 0.0)(x, sublayer))
