"""What must hold for every form of the primer, whatever the numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from clearhead.primer.additive_attention import AdditiveAttention
from clearhead.primer.attention_function import attention, attention_weights, softmax
from clearhead.primer.folded_heads import FoldedHeads, fold_heads
from clearhead.primer.linear_head import LinearHead
from clearhead.primer.masked_head import MaskedHead, causal, masked_attention, masked_weights
from clearhead.primer.multi_head import MultiHead
from clearhead.primer.parameter_head import ParameterHead
from clearhead.primer.post_norm_block import PostNormBlock
from clearhead.primer.self_attention import self_attention

Form = Callable[..., Tensor]

UNMASKED: dict[str, Callable[[], Form]] = {
    "self attention": lambda: self_attention,
    "parameter head": lambda: ParameterHead(8, 4),
    "linear head": lambda: LinearHead(8, 4),
}
MASKED: dict[str, Callable[[], nn.Module]] = {
    "masked head": lambda: MaskedHead(8, 4),
    "multi-head": lambda: MultiHead(8, 2),
    "folded heads": lambda: FoldedHeads(8, 2),
    "post-norm block": lambda: PostNormBlock(8, 2, 16),
}

every_masked_form = pytest.mark.parametrize("make", MASKED.values(), ids=MASKED.keys())
any_scores = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6)


@settings(deadline=None)
@given(any_scores)
def test_softmax_gives_shares_that_sum_to_one(scores: list[float]) -> None:
    shares = softmax(torch.tensor(scores, dtype=torch.float64))
    assert bool((shares >= 0).all())
    assert float(shares.sum()) == pytest.approx(1.0)


@settings(deadline=None)
@given(any_scores, st.floats(-1e3, 1e3))
def test_softmax_sees_only_differences(scores: list[float], shift: float) -> None:
    row = torch.tensor(scores, dtype=torch.float64)
    torch.testing.assert_close(softmax(row + shift), softmax(row), rtol=0.0, atol=1e-8)


def test_the_worked_example_by_the_formula() -> None:
    scaled = [score / 8 for score in (12.5, 30.8, 25.1)]
    assert scaled == [1.5625, 3.85, 3.1375]
    total = sum(math.exp(score) for score in scaled)
    shares = softmax(torch.tensor([12.5, 30.8, 25.1]) / math.sqrt(64))
    assert shares.tolist() == pytest.approx([math.exp(score) / total for score in scaled])


def test_attention_never_leaves_the_range_of_its_values() -> None:
    query, key, value = 10 * torch.randn(4, 3), torch.randn(6, 3), torch.randn(6, 2)
    mixed = attention(query, key, value)
    assert bool((mixed >= value.amin(0) - 1e-12).all() and (mixed <= value.amax(0) + 1e-12).all())


def test_masked_rows_sum_to_one_and_hidden_keys_get_exactly_nothing(shape, allowed) -> None:
    batch, time, _, _ = shape
    weights = masked_weights(100 * torch.randn(batch, time, time), allowed)
    torch.testing.assert_close(weights.sum(-1), torch.ones(batch, time))
    assert not weights[~allowed].any()


def test_a_causal_mask_over_equal_scores_averages_the_past() -> None:
    weights = masked_weights(torch.zeros(5, 5), causal(5))
    assert weights[0].tolist() == [1, 0, 0, 0, 0]
    for row in range(5):
        assert weights[row].tolist() == pytest.approx([1 / (row + 1)] * (row + 1) + [0] * (4 - row))


def test_a_row_that_may_see_nothing_yields_zeros_and_finite_gradients() -> None:
    query, key, value = (torch.randn(2, 3, 4, requires_grad=True) for _ in range(3))
    allowed = torch.ones(2, 3, 3, dtype=torch.bool)
    allowed[1, 2] = False
    with torch.autograd.set_detect_anomaly(True):  # NaN that a later mask would cover is found as well
        mixed = masked_attention(query, key, value, allowed)
        gradients = torch.autograd.grad(mixed.square().sum(), (query, key, value))
    assert not mixed[1, 2].any()
    assert mixed[0].all()
    for gradient in gradients:
        assert bool(gradient.isfinite().all())


@every_masked_form
def test_a_form_that_may_see_nothing_at_all_stays_finite(make: Callable[[], nn.Module]) -> None:
    form = make()
    output = form(torch.randn(2, 3, 8), torch.zeros(1, 3, 3, dtype=torch.bool))
    assert bool(output.isfinite().all())
    for gradient in torch.autograd.grad(output.square().sum(), list(form.parameters()), allow_unused=True):
        assert gradient is None or bool(gradient.isfinite().all())


@every_masked_form
def test_the_future_does_not_change_the_past(make: Callable[[], nn.Module]) -> None:
    form, x = make(), torch.randn(2, 5, 8)
    changed = x.clone()
    changed[:, 3:] = torch.randn(2, 2, 8)
    before, after = form(x, causal(5)[None]), form(changed, causal(5)[None])
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


@every_masked_form
def test_padding_does_not_change_the_rest(make: Callable[[], nn.Module]) -> None:
    form, x = make(), torch.randn(2, 3, 8)
    padded = torch.cat([x, torch.randn(2, 4, 8)], dim=1)
    real = (torch.arange(7) < 3).expand(2, 7, 7)
    alone = form(x, torch.ones(1, 3, 3, dtype=torch.bool))
    torch.testing.assert_close(form(padded, real)[:, :3], alone, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("make", UNMASKED.values(), ids=UNMASKED.keys())
def test_permuting_words_permutes_outputs(make: Callable[[], Form]) -> None:
    form, x, order = make(), torch.randn(2, 5, 8), torch.randperm(5)
    torch.testing.assert_close(form(x[:, order]), form(x)[:, order])


@every_masked_form
def test_every_parameter_gets_a_gradient(make: Callable[[], nn.Module]) -> None:
    form = make()
    form(torch.randn(2, 5, 8), causal(5)[None]).square().sum().backward()
    assert [name for name, parameter in form.named_parameters() if parameter.grad is None] == []


def test_each_sentence_keeps_its_own_mask_when_heads_are_folded() -> None:
    form, x = FoldedHeads(8, 4), torch.randn(2, 5, 8)
    allowed = torch.stack([causal(5), torch.ones(5, 5, dtype=torch.bool)])
    together = form(x, allowed)
    for sentence in range(2):
        alone = form(x[sentence : sentence + 1], allowed[sentence : sentence + 1])
        torch.testing.assert_close(together[sentence : sentence + 1], alone)


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(RuntimeError, match="unflatten"):
        fold_heads(torch.randn(1, 2, 8), num_heads=3)


def test_additive_scores_are_bounded_and_dot_products_are_not() -> None:
    form = AdditiveAttention(4, 4, 8).requires_grad_(False)
    query, key = 1e6 * torch.randn(5, 4), torch.randn(6, 4)
    bound = float(form.vector.weight.abs().sum())
    assert float(form.scores(query, key).abs().max()) <= bound + 1e-12
    assert float((query @ key.T).abs().max()) > bound


def test_additive_attention_gives_zeros_to_a_row_that_may_see_nothing() -> None:
    form, query, key, value = AdditiveAttention(3, 5, 4), torch.randn(2, 3), torch.randn(4, 5), torch.randn(4, 2)
    allowed = torch.tensor([[True, True, False, False], [False, False, False, False]])
    assert not form(query, key, value, allowed)[1].any()
    assert form.weights(query, key, allowed).sum(-1).tolist() == pytest.approx([1.0, 0.0])


def test_dividing_by_the_root_of_the_width_keeps_softmax_soft() -> None:
    query, key = torch.randn(200, 256), torch.randn(50, 256)
    scaled, raw = attention_weights(query, key).amax(-1).mean(), softmax(query @ key.T).amax(-1).mean()
    assert float(scaled) < 0.3 < 0.8 < float(raw)
