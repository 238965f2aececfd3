"""Dropout by bytes against torch's own, as far as chance allows to compare them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from clearhead.nn import dropout as dropouts
from clearhead.nn.dropout import LEVELS, Dropout, drop_bits_, keep_mask

SIZE = 400_000


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_nothing_is_dropped_at_inference(p: float) -> None:
    x = torch.randn(3, 5)
    assert torch.equal(Dropout(p).eval()(x), x)


@pytest.mark.parametrize("p", [0.01, 0.1, 0.3, 0.5, 0.9, 0.999])
def test_the_share_is_right_and_the_mean_is_exact(p: float) -> None:
    torch.manual_seed(0)
    mask = keep_mask(torch.ones(SIZE), p)
    wanted = min(max(round(p * LEVELS), 1), LEVELS - 1) / LEVELS
    assert abs(wanted - p) <= 1 / LEVELS
    spread = (wanted * (1 - wanted) / SIZE) ** 0.5
    assert float((mask == 0).float().mean()) == pytest.approx(wanted, abs=5 * spread)
    assert mask.unique().tolist() == pytest.approx([0.0, 1 / (1 - wanted)])


def test_every_byte_of_a_word_is_fair() -> None:
    """A draw that never sets its sign bit would favour every eighth feature."""
    torch.manual_seed(0)
    dropped = (keep_mask(torch.ones(SIZE), 0.3) == 0).float().reshape(-1, 8).mean(0)
    assert float((dropped - 77 / 256).abs().max()) < 0.01


def test_neighbours_and_repeats_are_independent() -> None:
    torch.manual_seed(0)
    first, second = ((keep_mask(torch.ones(SIZE), 0.5) == 0).float() - 0.5 for _ in range(2))
    for shift in (1, 2, 7, 8, 9, 64):
        assert abs(float((first[shift:] * first[:-shift]).mean())) < 0.25 * 0.02
    assert abs(float((first * second).mean())) < 0.25 * 0.02


def test_mean_and_variance_are_those_of_torchs_dropout() -> None:
    torch.manual_seed(0)
    x = torch.randn(SIZE)
    ours, theirs = Dropout(0.25)(x), nn.Dropout(0.25)(x)
    assert float(ours.mean()) == pytest.approx(float(theirs.mean()), abs=0.01)
    assert float(ours.var()) == pytest.approx(float(theirs.var()), rel=0.02)


def test_the_gradient_passes_where_the_feature_did() -> None:
    x = torch.ones(64, 3, requires_grad=True)
    y = Dropout(0.5)(x)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, y.detach())


def test_it_can_be_switched_off_for_torchs_own() -> None:
    x = torch.randn(40, 7)
    torch.manual_seed(3)
    ours = Dropout(0.3, by_bytes=False)(x)
    torch.manual_seed(3)
    assert torch.equal(ours, nn.Dropout(0.3)(x))


def test_the_seed_decides() -> None:
    x = torch.ones(1000)
    torch.manual_seed(3)
    first = Dropout(0.3)(x)
    torch.manual_seed(3)
    assert torch.equal(first, Dropout(0.3)(x))
    assert not torch.equal(first, Dropout(0.3)(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (2, 3, 4)])
def test_every_shape_and_format_works(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    y = Dropout(0.5)(torch.ones(shape, dtype=dtype).transpose(0, -1))
    assert y.dtype == dtype
    assert set(y.flatten().tolist()) <= {0.0, 2.0}


@pytest.mark.parametrize("shape", [(3, 5), (2, 7, 33), (0, 4)])
def test_dropout_of_a_relu_is_a_relu_and_then_dropout(shape: tuple[int, ...]) -> None:
    """The same draws, so the same bits: forward and backward."""
    given = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    given.view(-1)[:1] = 0.0
    found = []
    for together in (True, False):
        torch.manual_seed(2)
        x, dropout = given.clone().requires_grad_(), Dropout(0.3)
        y = dropout.of_relu(x) if together else dropout(x.relu())
        (y * torch.arange(y.numel()).view(shape)).sum().backward()
        assert x.grad is not None
        found.append((y.detach(), x.grad))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(("p", "by_bytes", "training"), [(0.0, True, True), (0.3, False, True), (0.3, True, False)])
def test_dropout_of_a_relu_elsewhere_is_what_the_two_are(p: float, by_bytes: bool, training: bool) -> None:
    x, dropout, found = torch.randn(4, 6), Dropout(p, by_bytes=by_bytes).train(training), []
    for way in (dropout.of_relu, lambda x: dropout(x.relu())):
        torch.manual_seed(3)
        found.append(way(x))
    assert torch.equal(*found)


def test_dropout_of_a_relu_keeps_one_tensor_for_the_backward_pass() -> None:
    kept: list[Tensor] = []
    x = torch.randn(8, 16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: kept.append(saved) or saved, lambda saved: saved):
        y = Dropout(0.3).of_relu(x)
    assert len(kept) == 1 and kept[0].data_ptr() == y.data_ptr()


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_bits_are_dropped_in_place_by_the_right_share(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropouts, "BITS_AT_ONCE", 1000)
    torch.manual_seed(0)
    x = torch.full((SIZE // 100, 100), -1.5, dtype=torch.bfloat16)
    scale, dropped = drop_bits_(x, p), (x == 0).float()
    wanted = min(max(round(p * LEVELS), 1), LEVELS - 1) / LEVELS
    assert scale == pytest.approx(1 / (1 - wanted))
    assert set(x.unique().tolist()) == {0.0, -1.5}
    spread = (wanted * (1 - wanted) / SIZE) ** 0.5
    assert float(dropped.mean()) == pytest.approx(wanted, abs=5 * spread)
    # Those of one lot have nothing to do with those of the next.
    lots = dropped.view(-1, 1000) - wanted
    assert abs(float((lots[1:] * lots[:-1]).mean())) < 0.02 * wanted * (1 - wanted) + 5 / SIZE**0.5 * wanted


def test_dropped_onto_a_stream_in_bf16_is_what_is_left_added_to_it() -> None:
    x, h = torch.randn(3, 50, 7, requires_grad=True), torch.randn(3, 50, 7).bfloat16().requires_grad_()
    towards = torch.randn(3, 50, 7)
    torch.manual_seed(4)
    y = Dropout(0.3).onto(x, h)
    torch.manual_seed(4)
    mask = keep_mask(torch.ones(3, 50, 7), 0.3)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, x + mask * h.float())
    by_x, by_h = torch.autograd.grad((y * towards).sum(), [x, h])
    assert torch.equal(by_x, towards) and by_h.dtype == torch.bfloat16
    assert torch.equal(by_h, (mask * towards).bfloat16())


@pytest.mark.parametrize(("p", "by_bytes", "training"), [(0.0, True, True), (0.3, False, True), (0.3, True, False)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropped_onto_a_stream_elsewhere_is_a_sum(p: float, by_bytes: bool, training: bool, dtype: torch.dtype) -> None:
    x, h, dropout, found = torch.randn(4, 6), torch.randn(4, 6, dtype=dtype), Dropout(p, by_bytes=by_bytes), []
    dropout.train(training)
    for way in (lambda: dropout.onto(x, h), lambda: x + dropout(h)):
        torch.manual_seed(3)
        found.append(way())
    assert torch.equal(*found)
