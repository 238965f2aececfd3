"""Each form of the primer equals torch's own with the same weights, forward and backward."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from clearhead.primer.additive_attention import AdditiveAttention
from clearhead.primer.attention_function import attention, attention_weights, softmax
from clearhead.primer.folded_heads import FoldedHeads
from clearhead.primer.linear_head import LinearHead
from clearhead.primer.masked_head import MaskedHead, masked_attention, masked_weights
from clearhead.primer.multi_head import MultiHead
from clearhead.primer.parameter_head import ParameterHead
from clearhead.primer.post_norm_block import PostNormBlock
from clearhead.primer.self_attention import self_attention

# Weights are handed over with functional_call, so both forms compute from the very same tensors, and their gradients
# can be compared without being carried back.

PROJECTIONS = ("query", "key", "value")


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def torch_attention(x: Tensor, num_heads: int, state: dict[str, Tensor], hidden: Tensor | None = None) -> Tensor:
    twin = nn.MultiheadAttention(x.shape[-1], num_heads, batch_first=True)
    output, _ = functional_call(twin, state, (x, x, x), {"attn_mask": hidden, "need_weights": False})
    return output


def joined(layers: nn.Module | nn.ModuleList) -> dict[str, Tensor]:
    """The three projections of one head or several as torch keeps them: one tall matrix, one long bias."""
    heads = layers if isinstance(layers, nn.ModuleList) else [layers]
    projections = [getattr(head, name) for name in PROJECTIONS for head in heads]
    return {
        "in_proj_weight": torch.cat([layer.weight for layer in projections]),
        "in_proj_bias": torch.cat([layer.bias for layer in projections]),
    }


def unmixed(dim: int) -> dict[str, Tensor]:
    """An output layer that changes nothing, for forms that have none."""
    return {"out_proj.weight": torch.eye(dim), "out_proj.bias": torch.zeros(dim)}


def mixed(output: nn.Linear) -> dict[str, Tensor]:
    return {"out_proj.weight": output.weight, "out_proj.bias": output.bias}


def hidden_per_head(allowed: Tensor, num_heads: int) -> Tensor:
    """torch's mask is ours turned round: True = may not look, one per sentence and head."""
    return ~allowed.repeat_interleave(num_heads, dim=0)


def test_softmax_equals_torch(agree) -> None:
    scores = leaf(3, 5)
    agree(softmax(scores), scores.softmax(-1), [scores])


@pytest.mark.parametrize("sides", [(1, 1), (3, 5), (5, 3)])
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_attention_equals_torch(agree, sides: tuple[int, int], batch: tuple[int, ...]) -> None:
    queries, keys = sides
    query, key, value = leaf(*batch, queries, 4), leaf(*batch, keys, 4), leaf(*batch, keys, 6)
    agree(attention(query, key, value), F.scaled_dot_product_attention(query, key, value), [query, key, value])


def test_attention_in_single_precision_equals_torch() -> None:
    query, key, value = torch.randn(3, 2, 5, 64, dtype=torch.float32)
    twin = F.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(attention(query, key, value), twin, rtol=0.0, atol=1e-6)


def test_self_attention_equals_torch_with_identity_matrices(agree, shape) -> None:
    batch, time, dim, _ = shape
    x = leaf(batch, time, dim)
    state = {"in_proj_weight": torch.eye(dim).repeat(3, 1), "in_proj_bias": torch.zeros(3 * dim), **unmixed(dim)}
    agree(self_attention(x), torch_attention(x, 1, state), [x])


def test_the_parameter_head_equals_torch(agree, shape) -> None:
    batch, time, dim, _ = shape
    head, x = ParameterHead(dim, dim), leaf(batch, time, dim)
    weight = torch.cat([head.query.T, head.key.T, head.value.T])
    state = {"in_proj_weight": weight, "in_proj_bias": torch.zeros(3 * dim), **unmixed(dim)}
    agree(head(x), torch_attention(x, 1, state), [x, *head.parameters()])


def test_the_linear_head_equals_torch(agree, shape) -> None:
    batch, time, dim, _ = shape
    head, x = LinearHead(dim, dim), leaf(batch, time, dim)
    agree(head(x), torch_attention(x, 1, joined(head) | unmixed(dim)), [x, *head.parameters()])


def test_the_linear_head_with_turned_matrices_equals_the_parameter_head(agree) -> None:
    before, after, x = ParameterHead(6, 4), LinearHead(6, 4), leaf(2, 5, 6)
    state = {f"{name}.weight": matrix.T for name, matrix in before.named_parameters()}
    state |= {f"{name}.bias": torch.zeros(4) for name in PROJECTIONS}
    agree(before(x), functional_call(after, state, (x,)), [x, *before.parameters()])


def test_masked_attention_equals_torch(agree, shape, allowed) -> None:
    batch, time, dim, _ = shape
    query, key, value = leaf(batch, time, dim), leaf(batch, time, dim), leaf(batch, time, dim)
    twin = F.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
    agree(masked_attention(query, key, value, allowed), twin, [query, key, value])


def test_the_masked_head_equals_torch(agree, shape, allowed) -> None:
    batch, time, dim, _ = shape
    head, x = MaskedHead(dim, dim), leaf(batch, time, dim)
    agree(head(x, allowed), torch_attention(x, 1, joined(head) | unmixed(dim), ~allowed), [x, *head.parameters()])


def test_the_multi_head_form_equals_torch(agree, shape, allowed) -> None:
    batch, time, dim, num_heads = shape
    form, x = MultiHead(dim, num_heads), leaf(batch, time, dim)
    state = joined(form.heads) | mixed(form.output)
    twin = torch_attention(x, num_heads, state, hidden_per_head(allowed, num_heads))
    agree(form(x, allowed), twin, [x, *form.parameters()])


def test_folded_heads_equal_torch(agree, shape, allowed) -> None:
    batch, time, dim, num_heads = shape
    form, x = FoldedHeads(dim, num_heads), leaf(batch, time, dim)
    twin = torch_attention(x, num_heads, joined(form) | mixed(form.output), hidden_per_head(allowed, num_heads))
    agree(form(x, allowed), twin, [x, *form.parameters()])


def test_folded_heads_equal_the_loop_over_heads(agree, shape, allowed) -> None:
    batch, time, dim, num_heads = shape
    loop, folded, x = MultiHead(dim, num_heads), FoldedHeads(dim, num_heads), leaf(batch, time, dim)
    state = {"output.weight": loop.output.weight, "output.bias": loop.output.bias}
    for name in PROJECTIONS:
        state[f"{name}.weight"] = torch.cat([getattr(head, name).weight for head in loop.heads])
        state[f"{name}.bias"] = torch.cat([getattr(head, name).bias for head in loop.heads])
    agree(loop(x, allowed), functional_call(folded, state, (x, allowed)), [x, *loop.parameters()])


def test_the_post_norm_block_equals_torch(agree, shape, allowed) -> None:
    batch, time, dim, num_heads = shape
    block, x = PostNormBlock(dim, num_heads, ff_dim=2 * dim), leaf(batch, time, dim)
    for norm in (block.attention_norm, block.feedforward_norm):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    attention = {f"self_attn.{k}": v for k, v in (joined(block.attention) | mixed(block.attention.output)).items()}
    names = {
        "attention_norm": "norm1",
        "feedforward.0": "linear1",
        "feedforward.2": "linear2",
        "feedforward_norm": "norm2",
    }
    rest = {
        f"{theirs}.{part}": getattr(block.get_submodule(ours), part)
        for ours, theirs in names.items()
        for part in ("weight", "bias")
    }
    layer = nn.TransformerEncoderLayer(dim, num_heads, 2 * dim, dropout=0.0, activation="relu", batch_first=True)
    hidden = hidden_per_head(allowed, num_heads)
    twin = functional_call(layer, attention | rest, (x,), {"src_mask": hidden})
    agree(block(x, allowed), twin, [x, *block.parameters()])


def test_additive_scores_equal_a_loop_over_every_number() -> None:
    form, query, key = AdditiveAttention(3, 5, 4).requires_grad_(False), torch.randn(2, 3, 3), torch.randn(2, 4, 5)
    into_query, into_key, vector = form.query.weight, form.key.weight, form.vector.weight[0]
    scores = form.scores(query, key)
    for sentence in range(2):
        for i in range(3):
            for j in range(4):
                asked, answered = into_query @ query[sentence, i], into_key @ key[sentence, j]
                one = sum(float(vector[h]) * math.tanh(float(asked[h] + answered[h])) for h in range(4))
                assert float(scores[sentence, i, j]) == pytest.approx(one, abs=1e-12)


def test_additive_attention_shares_and_mixes_as_torch_does(agree) -> None:
    """torch has no additive scores, but takes any score as a bias: with zero queries, nothing else is left."""
    form, query, key, value = AdditiveAttention(3, 5, 4), leaf(2, 3, 3), leaf(2, 4, 5), leaf(2, 4, 6)
    allowed = torch.rand(2, 3, 4) < 0.5
    allowed[..., 0] = True
    bias = form.scores(query, key).masked_fill(~allowed, -math.inf)
    twin = F.scaled_dot_product_attention(torch.zeros(2, 3, 6), value.detach(), value, attn_mask=bias)
    agree(form(query, key, value, allowed), twin, [query, key, value, *form.parameters()])


def test_the_gradient_of_additive_attention_is_its_slope() -> None:
    form, allowed = AdditiveAttention(3, 5, 4), torch.ones(3, 4, dtype=torch.bool).tril()
    inputs = leaf(3, 3), leaf(4, 5), leaf(4, 2)
    assert torch.autograd.gradcheck(lambda *tensors: form(*tensors, allowed), inputs)


def test_additive_and_dot_product_rows_both_sum_to_one() -> None:
    query, key, everything = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.ones(2, 3, 5, dtype=torch.bool)
    additive, dot_product = AdditiveAttention(4, 4, 8).weights(query, key, everything), attention_weights(query, key)
    assert not torch.allclose(additive, dot_product)
    for weights in (additive, dot_product, masked_weights(query @ key.mT, everything)):
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3))
