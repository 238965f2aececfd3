"""Each form of the primer equals its production twin in clearhead.nn with the same weights, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from clearhead.nn import masks
from clearhead.nn.attention import Attention, merge_heads, split_heads
from clearhead.nn.feedforward import FEED_FORWARDS
from clearhead.nn.kernels import KERNELS, MaskedSoftmax
from clearhead.nn.norms import NORMS
from clearhead.nn.residual import RESIDUALS
from clearhead.nn.stacks import Block
from clearhead.nn.tokens import Tokens
from clearhead.primer.additive_attention import AdditiveAttention
from clearhead.primer.attention_function import attention
from clearhead.primer.folded_heads import FoldedHeads, fold_heads, unfold_heads
from clearhead.primer.linear_head import LinearHead
from clearhead.primer.masked_head import MaskedHead, causal, masked_attention, masked_weights
from clearhead.primer.multi_head import MultiHead
from clearhead.primer.parameter_head import ParameterHead
from clearhead.primer.post_norm_block import PostNormBlock
from clearhead.primer.self_attention import self_attention

PROJECTIONS = ("query", "key", "value")

every_kernel = pytest.mark.parametrize("kernel", KERNELS)


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def with_a_blind_row(allowed: Tensor) -> Tensor:
    """The same mask, in which the last row of the last sentence sees nothing."""
    blinded = allowed.clone()
    blinded[-1, -1] = False
    return blinded


def in_production(twin: Attention, weights: dict[str, Tensor], x: Tensor, allowed: Tensor | None = None) -> Tensor:
    per_head = None if allowed is None else allowed[:, None]
    return functional_call(twin, weights, (x,), {"allowed": per_head})


def stacked(heads: nn.ModuleList) -> dict[str, Tensor]:
    """The projections of all heads, one below the other."""
    return {
        f"{name}.{part}": torch.cat([getattr(getattr(head, name), part) for head in heads])
        for name in PROJECTIONS
        for part in ("weight", "bias")
    }


@every_kernel
def test_attention_is_every_kernel(agree, shape, kernel: str) -> None:
    batch, time, dim, num_heads = shape
    query, key, value = (
        leaf(batch, num_heads, 3, dim),
        leaf(batch, num_heads, time, dim),
        leaf(batch, num_heads, time, dim),
    )
    agree(attention(query, key, value), KERNELS[kernel]()(query, key, value), [query, key, value])


@every_kernel
def test_self_attention_is_one_production_head_with_identity_matrices(agree, shape, kernel: str) -> None:
    batch, time, dim, _ = shape
    x, twin = leaf(batch, time, dim), Attention(dim, 1, projection_bias=False, kernel=kernel)
    identity = {f"{name}.weight": torch.eye(dim) for name in (*PROJECTIONS, "output")}
    agree(self_attention(x), in_production(twin, identity, x), [x])


@every_kernel
@pytest.mark.parametrize("head_dim", [1, 4, 9])
def test_the_parameter_head_is_one_production_head(agree, kernel: str, head_dim: int) -> None:
    head, x = ParameterHead(6, head_dim), leaf(2, 5, 6)
    twin = Attention(6, 1, head_dim=head_dim, projection_bias=False, kernel=kernel)
    weights = {f"{name}.weight": matrix.T for name, matrix in head.named_parameters()}
    agree(twin.output(head(x)), in_production(twin, weights, x), [x, *head.parameters()])


@every_kernel
@pytest.mark.parametrize("head_dim", [1, 4, 9])
def test_the_linear_head_is_one_production_head(agree, kernel: str, head_dim: int) -> None:
    head, x = LinearHead(6, head_dim), leaf(2, 5, 6)
    twin = Attention(6, 1, head_dim=head_dim, kernel=kernel)
    agree(twin.output(head(x)), in_production(twin, dict(head.named_parameters()), x), [x, *head.parameters()])


@every_kernel
def test_the_masked_head_is_one_production_head(agree, shape, allowed, kernel: str) -> None:
    batch, time, dim, _ = shape
    head, x, allowed = MaskedHead(dim, 4), leaf(batch, time, dim), with_a_blind_row(allowed)
    twin = Attention(dim, 1, head_dim=4, kernel=kernel)
    weights = dict(head.named_parameters())
    agree(twin.output(head(x, allowed)), in_production(twin, weights, x, allowed), [x, *head.parameters()])


@every_kernel
def test_masked_attention_is_every_kernel(agree, shape, allowed, kernel: str) -> None:
    batch, time, dim, num_heads = shape
    query, key, value = (leaf(batch, num_heads, time, dim) for _ in PROJECTIONS)
    per_head = with_a_blind_row(allowed)[:, None]
    twin = KERNELS[kernel]()(query, key, value, allowed=per_head)
    agree(masked_attention(query, key, value, per_head), twin, [query, key, value])


def test_masked_weights_are_the_production_softmax(agree, shape, allowed) -> None:
    batch, time, _, num_heads = shape
    scores, per_head = leaf(batch, num_heads, time, time), with_a_blind_row(allowed)[:, None]
    agree(masked_weights(scores, per_head), MaskedSoftmax()(scores, per_head), [scores])


@pytest.mark.parametrize("time", [1, 2, 5])
def test_the_causal_mask_is_the_production_mask(time: int) -> None:
    assert torch.equal(causal(time), masks.causal(time, time))


@every_kernel
def test_a_causal_mask_given_by_hand_is_the_production_flag(agree, kernel: str) -> None:
    form, x = FoldedHeads(8, 2), leaf(2, 5, 8)
    twin = Attention(8, 2, kernel=kernel)
    asked_for = functional_call(twin, dict(form.named_parameters()), (x,), {"causal": True})
    agree(form(x, causal(5)[None]), asked_for, [x, *form.parameters()])


@every_kernel
def test_the_multi_head_form_is_production_attention(agree, shape, allowed, kernel: str) -> None:
    batch, time, dim, num_heads = shape
    form, x, allowed = MultiHead(dim, num_heads), leaf(batch, time, dim), with_a_blind_row(allowed)
    weights = stacked(form.heads) | {"output.weight": form.output.weight, "output.bias": form.output.bias}
    twin = Attention(dim, num_heads, kernel=kernel)
    agree(form(x, allowed), in_production(twin, weights, x, allowed), [x, *form.parameters()])


@every_kernel
def test_folded_heads_are_production_attention_under_the_same_names(agree, shape, allowed, kernel: str) -> None:
    batch, time, dim, num_heads = shape
    form, x, allowed = FoldedHeads(dim, num_heads), leaf(batch, time, dim), with_a_blind_row(allowed)
    twin, weights = Attention(dim, num_heads, kernel=kernel), dict(form.named_parameters())
    assert weights.keys() == dict(twin.named_parameters()).keys()
    agree(form(x, allowed), in_production(twin, weights, x, allowed), [x, *form.parameters()])


def test_folding_is_splitting_with_two_axes_written_as_one(shape) -> None:
    batch, time, dim, num_heads = shape
    x = torch.randn(batch, time, dim)
    folded, split = fold_heads(x, num_heads), split_heads(x, num_heads)
    assert torch.equal(folded, split.flatten(0, 1))
    assert torch.equal(unfold_heads(folded, num_heads), merge_heads(split))


def production_block(dim: int, num_heads: int, ff_dim: int, kernel: str) -> Block:
    return Block(
        Attention(dim, num_heads, kernel=kernel),
        FEED_FORWARDS["relu"](dim, ff_dim),
        lambda: RESIDUALS["post"](NORMS["layer"](dim), 0.0),
    )


@every_kernel
def test_the_post_norm_block_is_the_production_block(agree, shape, allowed, kernel: str) -> None:
    batch, time, dim, num_heads = shape
    block, x, allowed = PostNormBlock(dim, num_heads, 2 * dim), leaf(batch, time, dim), with_a_blind_row(allowed)
    for norm in (block.attention_norm, block.feedforward_norm):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    new_names = {
        "attention_norm": "around_attention.norm",
        "feedforward.0": "feedforward.inner",
        "feedforward.2": "feedforward.outer",
        "feedforward_norm": "around_feedforward.norm",
    }
    weights = {}
    for name, parameter in block.named_parameters():
        module, part = name.rsplit(".", 1)
        weights[f"{new_names.get(module, module)}.{part}"] = parameter
    twin = production_block(dim, num_heads, 2 * dim, kernel)
    assert weights.keys() == dict(twin.named_parameters()).keys()
    output = functional_call(twin, weights, (Tokens(x),), {"allowed": allowed[:, None]}).x
    agree(block(x, allowed), output, [x, *block.parameters()])


@every_kernel
def test_additive_attention_is_every_kernel_given_its_scores_as_bias(agree, kernel: str) -> None:
    """Production has no additive scores, but adds any bias to its own: with zero queries, nothing else is left."""
    form, query, key, value = AdditiveAttention(3, 5, 4), leaf(1, 3, 3), leaf(1, 4, 5), leaf(1, 4, 6)
    allowed = torch.tensor([[[True, False, False, False], [True, True, True, True], [False, False, False, False]]])
    silent, per_head = torch.zeros(1, 1, 3, 6), value[:, None]
    bias = form.scores(query, key)
    twin = KERNELS[kernel]()(silent, per_head.detach(), per_head, allowed=allowed[:, None], bias=bias)
    agree(form(query, key, value, allowed), twin[:, 0], [query, key, value, *form.parameters()])
