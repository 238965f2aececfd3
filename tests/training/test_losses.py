"""Losses against torch's own and against loops written from their formulas."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.nn.embedding import OutputLayer
from clearhead.training.losses import CHUNKS_TOGETHER, LOSSES

PAD = 2


@pytest.fixture
def output() -> OutputLayer:
    torch.manual_seed(0)
    layer = OutputLayer(6, 11)
    nn.init.normal_(layer.weight)
    return layer


def some(count: int = 7) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    labels = torch.randint(3, 11, (count,))
    return torch.randn(count, 6, requires_grad=True), labels


def kl_by_loop(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """The notes' formula, entry by entry: 1−ε on the label, 0 on padding, ε/(V−2) on the rest."""
    log_probs = logits.log_softmax(-1)
    total = torch.zeros(())
    for row, label in enumerate(labels.tolist()):
        for entry in range(logits.shape[1]):
            wanted = 0.0 if entry == PAD else smoothing / (logits.shape[1] - 2)
            wanted = 1 - smoothing if entry == label else wanted
            if wanted > 0:
                total = total + wanted * (math.log(wanted) - log_probs[row, entry])
    return total


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_cross_entropy_equals_torchs_forward_and_backward(output: OutputLayer, smoothing: float) -> None:
    hidden, labels = some()
    ours = LOSSES["cross_entropy"](smoothing, PAD)(hidden, labels, output)
    theirs = F.cross_entropy(output(hidden), labels, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(ours.total, theirs)
    for mine, other in zip(
        torch.autograd.grad(ours.total, [hidden, output.weight]),
        torch.autograd.grad(theirs, [hidden, output.weight]),
        strict=True,
    ):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("smoothing", [0.1, 0.4])
def test_the_kl_form_equals_a_loop_from_its_formula(output: OutputLayer, smoothing: float) -> None:
    hidden, labels = some()
    ours = LOSSES["kl"](smoothing, PAD)(hidden, labels, output)
    loop = kl_by_loop(output(hidden), labels, smoothing)
    torch.testing.assert_close(ours.total, loop)
    torch.testing.assert_close(torch.autograd.grad(ours.total, hidden)[0], torch.autograd.grad(loop, hidden)[0])


def test_the_kl_form_is_zero_when_the_model_says_just_what_the_label_says() -> None:
    vocab, smoothing = 11, 0.1
    wanted = torch.full((vocab,), smoothing / (vocab - 2))
    wanted[5], wanted[PAD] = 1 - smoothing, 1e-30
    output = OutputLayer(vocab, vocab)
    nn.init.eye_(output.weight)
    loss = LOSSES["kl"](smoothing, PAD)(wanted.log()[None], torch.tensor([5]), output)
    assert abs(float(loss.total.detach())) < 1e-5


@pytest.mark.parametrize("name", LOSSES)
def test_nll_is_unsmoothed_and_counts_every_token(output: OutputLayer, name: str) -> None:
    hidden, labels = some()
    sums = LOSSES[name](0.1, PAD)(hidden, labels, output)
    torch.testing.assert_close(sums.nll, F.cross_entropy(output(hidden), labels, reduction="sum").detach())
    assert sums.tokens == len(labels)


@pytest.mark.parametrize("name", LOSSES)
def test_without_smoothing_all_losses_are_the_negative_log_likelihood(output: OutputLayer, name: str) -> None:
    hidden, labels = some()
    sums = LOSSES[name](0.0, PAD)(hidden, labels, output)
    torch.testing.assert_close(sums.total.detach(), sums.nll)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 3, 256])
def test_a_few_rows_at_a_time_give_the_same_loss_and_gradients(
    output: OutputLayer, name: str, smoothing: float, rows: int
) -> None:
    hidden, labels = some(10)
    found = []
    for rows_at_once in (None, rows):
        sums = LOSSES[name](smoothing, PAD, rows_at_once=rows_at_once)(hidden, labels, output)
        found.append((sums.total, sums.nll, *torch.autograd.grad(2.5 * sums.total, [hidden, output.weight])))
    for plain, chunked in zip(*found, strict=True):
        torch.testing.assert_close(chunked, plain)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [2, 256])
def test_a_few_rows_at_a_time_work_in_bf16(output: OutputLayer, name: str, smoothing: float, rows: int) -> None:
    hidden, labels = some(10)
    found = []
    for rows_at_once in (None, rows):
        with torch.autocast("cpu", torch.bfloat16):
            sums = LOSSES[name](smoothing, PAD, rows_at_once=rows_at_once)(hidden, labels, output)
        found.append((sums.total, sums.nll, *torch.autograd.grad(2.5 * sums.total, [hidden, output.weight])))
    for plain, chunked in zip(*found, strict=True):
        assert chunked.dtype == plain.dtype
        torch.testing.assert_close(chunked, plain, rtol=0.01, atol=0.05)


@pytest.mark.parametrize("count", [32 * CHUNKS_TOGETHER, 32 * (2 * CHUNKS_TOGETHER + 1) + 5])
def test_in_bf16_the_gradients_of_many_chunks_are_added_up(output: OutputLayer, count: int) -> None:
    hidden, labels = some(count)
    found = []
    for rows_at_once in (None, 1):
        with torch.autocast("cpu", torch.bfloat16, enabled=rows_at_once is not None):
            sums = LOSSES["cross_entropy"](0.1, PAD, rows_at_once=rows_at_once)(hidden, labels, output)
        found.append(torch.autograd.grad(sums.total, output.weight)[0])
    torch.testing.assert_close(*found, rtol=0.02, atol=0.01 * float(found[0].abs().max()))


def test_in_bf16_a_label_that_seemed_impossible_has_a_finite_loss(output: OutputLayer) -> None:
    hidden, labels = some()
    extreme = (hidden.detach() * 300).requires_grad_()
    results = []
    for rows_at_once in (2, None):
        with torch.autocast("cpu", torch.bfloat16):
            sums = LOSSES["cross_entropy"](0.1, PAD, rows_at_once=rows_at_once)(extreme, labels, output)
        results.append(torch.stack([sums.total.detach(), sums.nll]))
    assert float(results[0][1]) > 100
    torch.testing.assert_close(results[0], results[1], rtol=0.01, atol=0.0)


@pytest.mark.parametrize("narrow", [False, True])
def test_where_nothing_is_asked_nothing_is_lost_or_learnt(output: OutputLayer, narrow: bool) -> None:
    hidden, labels = some(0)
    torch.use_deterministic_algorithms(True)  # Memory that nobody has written to holds no zeros then.
    try:
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            sums = LOSSES["cross_entropy"](0.1, PAD)(hidden, labels, output)
        by_hidden, by_weight = torch.autograd.grad(sums.total, [hidden, output.weight])
    finally:
        torch.use_deterministic_algorithms(False)
    assert float(sums.total.detach()) == 0.0
    assert by_hidden.shape == hidden.shape
    assert torch.equal(by_weight, torch.zeros_like(by_weight))


def test_without_gradients_nothing_is_computed_for_them(output: OutputLayer) -> None:
    hidden, labels = some()
    with torch.no_grad():
        sums = LOSSES["cross_entropy"](0.1, PAD)(hidden, labels, output)
    assert not sums.total.requires_grad


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("biased", [False, True])
def test_without_gradients_too_the_logits_of_a_few_rows_exist_at_once(name: str, biased: bool) -> None:
    torch.manual_seed(0)
    output = OutputLayer(6, 11, biased=biased)
    for parameter in output.parameters():
        nn.init.normal_(parameter)
    hidden, labels = some(10)
    rows: list[int] = []
    with torch.no_grad():
        whole = LOSSES[name](0.1, PAD, rows_at_once=None)(hidden, labels, output)
        output.register_forward_hook(lambda layer, given, logits: rows.append(len(logits)))
        chunked = LOSSES[name](0.1, PAD, rows_at_once=4)(hidden, labels, output)
    assert rows == [4, 4, 2]
    torch.testing.assert_close(chunked.total, whole.total)
    torch.testing.assert_close(chunked.nll, whole.nll)
    assert chunked.tokens == whole.tokens == 10


@pytest.mark.parametrize("name", LOSSES)
def test_far_apart_logits_lose_nothing_in_chunks(output: OutputLayer, name: str) -> None:
    hidden, labels = some()
    extreme = (hidden.detach() * 300).requires_grad_()
    results = []
    for rows_at_once in (2, None):
        sums = LOSSES[name](0.1, PAD, rows_at_once=rows_at_once)(extreme, labels, output)
        results.append([sums.total.detach(), sums.nll, *torch.autograd.grad(sums.total, [extreme, output.weight])])
    assert float(results[0][1]) > 100
    for chunked, plain in zip(*results, strict=True):
        torch.testing.assert_close(chunked, plain)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 3, 256])
def test_agreement_a_few_rows_at_a_time_gives_the_same_loss_and_gradients(
    output: OutputLayer, name: str, smoothing: float, rows: int
) -> None:
    first, labels = some(10)
    second = torch.randn_like(first, requires_grad=True)
    found = []
    for rows_at_once in (None, rows):
        loss = LOSSES[name](smoothing, PAD, agreement=3.0, rows_at_once=rows_at_once)
        sums = loss.of_two(first, second, labels, output)
        found.append((sums.total, sums.nll, *torch.autograd.grad(2.5 * sums.total, [first, second, output.weight])))
    for plain, chunked in zip(*found, strict=True):
        torch.testing.assert_close(chunked, plain)


def test_agreement_is_half_of_r_drops_formula(output: OutputLayer) -> None:
    first, labels = some()
    second, alpha = torch.randn_like(first), 5.0
    ours = LOSSES["cross_entropy"](0.1, PAD, agreement=alpha).of_two(first, second, labels, output)
    p, q = output(first).log_softmax(-1), output(second).log_softmax(-1)
    cross = sum(
        F.cross_entropy(output(hidden), labels, label_smoothing=0.1, reduction="sum") for hidden in (first, second)
    )
    both = F.kl_div(p, q, log_target=True, reduction="sum") + F.kl_div(q, p, log_target=True, reduction="sum")
    torch.testing.assert_close(ours.total, (cross + alpha / 2 * both) / 2)


def test_two_equal_passes_lose_what_one_does(output: OutputLayer) -> None:
    hidden, labels = some()
    loss = LOSSES["cross_entropy"](0.1, PAD, agreement=5.0)
    one, two = loss(hidden, labels, output), loss.of_two(hidden, hidden, labels, output)
    torch.testing.assert_close(two.total, one.total)
    torch.testing.assert_close(two.nll, one.nll)
    assert two.tokens == one.tokens


# Classes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("classes", [2, 5])
def test_of_classes_none_is_padding_and_the_right_ones_are_counted(smoothing: float, classes: int) -> None:
    torch.manual_seed(2)
    logits, labels = torch.randn(9, classes), torch.randint(0, classes, (9,))
    found = LOSSES["cross_entropy"](smoothing, PAD).of_classes(logits, labels)
    torch.testing.assert_close(found.total, F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum"))
    torch.testing.assert_close(found.nll, F.cross_entropy(logits, labels, reduction="sum"))
    assert (found.tokens, found.right) == (9, int((logits.argmax(1) == labels).sum()))


def test_the_kl_form_of_classes_spreads_over_all_but_the_right_one() -> None:
    torch.manual_seed(2)
    logits, labels = torch.randn(9, 5), torch.randint(0, 5, (9,))
    wanted = torch.full((9, 5), 0.2 / 4).scatter_(1, labels[:, None], 0.8)
    theirs = F.kl_div(logits.log_softmax(-1), wanted, reduction="sum")
    torch.testing.assert_close(LOSSES["kl"](0.2, PAD).of_classes(logits, labels).total, theirs)
