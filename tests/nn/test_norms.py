"""Every norm against torch's own, and the laws of padding and time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from clearhead.nn.norms import NORMS, BatchNorm, GroupNorm, Norm

BATCH, TIME, DIM = 3, 5, 16


class FeaturesFirst(nn.Module):
    """torch's norms over positions expect (batch, dim, time)."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


TORCH: dict[str, Callable[[], nn.Module]] = {
    "layer": lambda: nn.LayerNorm(DIM),
    "rms": lambda: nn.RMSNorm(DIM, eps=1e-6),
    "batch": lambda: FeaturesFirst(nn.BatchNorm1d(DIM)),
    "instance": lambda: FeaturesFirst(nn.InstanceNorm1d(DIM, affine=True)),
    "group": lambda: FeaturesFirst(nn.GroupNorm(8, DIM)),
}


def pair(name: str) -> tuple[Norm, nn.Module]:
    """Ours and torch's, with the same scale and shift."""
    ours, theirs = NORMS[name](DIM), TORCH[name]()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        other.data.copy_(mine.data.normal_())
    return ours, theirs


def ragged() -> tuple[Tensor, Tensor]:
    """A batch of unequal lengths, with rubbish for padding."""
    real = torch.arange(TIME) < torch.tensor([[5], [3], [1]])
    x = torch.randn(BATCH, TIME, DIM) * 2 + 1
    return torch.where(real[..., None], x, 100 * torch.randn_like(x)), real


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", TORCH)
def test_a_norm_equals_torchs_own_forward_and_backward(name: str, training: bool) -> None:
    ours, theirs = (norm.train(training) for norm in pair(name))
    x = (torch.randn(BATCH, TIME, DIM) * 2 + 1).requires_grad_()
    wanted = torch.randn(BATCH, TIME, DIM)
    results = []
    for norm in (ours, theirs):
        output = norm(x)
        gradients = torch.autograd.grad((output * wanted).sum(), [x, *norm.parameters()])
        results.append([output, *gradients])
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)


def test_batch_norms_running_statistics_equal_torchs() -> None:
    ours, theirs = pair("batch")
    for _ in range(3):
        x = torch.randn(BATCH, TIME, DIM) * 2 + 1
        ours(x), theirs(x)
    torch.testing.assert_close(ours.running_mean, theirs.norm.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.norm.running_var)
    x = torch.randn(BATCH, TIME, DIM)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), atol=1e-5, rtol=1e-5)


def test_batch_norm_behaves_differently_in_training_and_inference() -> None:
    norm, x = BatchNorm(DIM), torch.randn(BATCH, TIME, DIM) * 2 + 1
    trained = norm(x)
    torch.testing.assert_close(trained.mean((0, 1)), torch.zeros(DIM), atol=1e-5, rtol=0)
    before = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    inferred = norm.eval()(x)
    assert not torch.allclose(trained, inferred, atol=0.1)
    torch.testing.assert_close(norm(x[:1, :1]), inferred[:1, :1])
    assert all(torch.equal(buffer, before[name]) for name, buffer in norm.named_buffers())


def test_batch_norm_computes_with_real_tokens_only() -> None:
    x, real = ragged()
    padded, flat = BatchNorm(DIM), BatchNorm(DIM)
    torch.testing.assert_close(padded(x, real)[real], flat(x[real][None])[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(padded.running_mean, flat.running_mean)
    torch.testing.assert_close(padded.running_var, flat.running_var)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NORMS)
def test_padding_does_not_change_the_rest(name: str, training: bool) -> None:
    norms = [NORMS[name](DIM).train(training) for _ in range(2)]
    x, real = ragged()
    other = torch.where(real[..., None], x, 50 * torch.randn_like(x))
    first, second = norms[0](x, real), norms[1](other, real)
    torch.testing.assert_close(first[real], second[real], atol=1e-5, rtol=1e-5)
    for one, two in zip(norms[0].buffers(), norms[1].buffers(), strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("name", NORMS)
def test_without_a_mask_every_token_is_real(name: str) -> None:
    x = torch.randn(BATCH, TIME, DIM)
    everything = torch.ones(BATCH, TIME, dtype=torch.bool)
    assert torch.equal(NORMS[name](DIM)(x), NORMS[name](DIM)(x, everything))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NORMS)
def test_a_sequence_of_padding_only_gives_finite_output_and_gradients(name: str, training: bool) -> None:
    norm = NORMS[name](DIM).train(training)
    x = torch.randn(BATCH, TIME, DIM, requires_grad=True)
    for real in (torch.zeros(BATCH, TIME, dtype=torch.bool), torch.arange(BATCH)[:, None].expand(BATCH, TIME) > 0):
        output = norm(x, real)
        (gradient,) = torch.autograd.grad(output.square().sum(), x)
        assert output.isfinite().all()
        assert gradient.isfinite().all()
    assert all(buffer.isfinite().all() for buffer in norm.buffers())


@pytest.mark.parametrize("name", NORMS)
def test_mixes_time_says_whether_later_positions_matter_at_inference(name: str) -> None:
    norm, x = NORMS[name](DIM).eval(), torch.randn(BATCH, TIME, DIM)
    changed = torch.cat([x[:, :-1], torch.randn(BATCH, 1, DIM)], dim=1)
    same = torch.allclose(norm(x)[:, :-1], norm(changed)[:, :-1], atol=1e-6)
    assert same == (not norm.mixes_time)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NORMS)
def test_half_precision_is_close_to_full(name: str, training: bool) -> None:
    x = torch.randn(4, 150, DIM) + 1
    real = torch.arange(150) < torch.tensor([[150], [149], [70], [33]])
    full = NORMS[name](DIM).train(training)
    half = NORMS[name](DIM).train(training).bfloat16()
    output = half(x.bfloat16(), real)
    torch.testing.assert_close(output.float()[real], full(x, real)[real], atol=0.05, rtol=0.02)


@pytest.mark.parametrize(("dim", "num_groups"), [(16, 8), (12, 4), (7, 1), (8, 8)])
def test_group_norm_uses_as_many_groups_as_divide_the_features(dim: int, num_groups: int) -> None:
    norm = GroupNorm(dim)
    x = torch.randn(2, TIME, dim)
    assert norm.num_groups == num_groups
    theirs = nn.GroupNorm(num_groups, dim)(x.transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(norm(x), theirs, atol=1e-5, rtol=1e-5)
