"""Attention around its kernels: shared heads, remembered contexts, caches, and messages for sizes that do not fit."""

from __future__ import annotations

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.nn import masks
from clearhead.nn.attention import Attention, merge_heads, split_heads
from clearhead.nn.cache import KeyValueCache
from clearhead.nn.kernels import KERNELS
from clearhead.nn.positions import POSITIONS, Positions

BATCH, TIME, DIM, HEADS = 2, 6, 16, 4


def positions(name: str) -> Positions:
    made = POSITIONS[name](dim=DIM, num_heads=HEADS, head_dim=DIM // HEADS, max_len=TIME)
    for parameter in made.parameters():
        parameter.data.normal_()
    return made


def test_splitting_and_merging_heads_undo_each_other() -> None:
    x = torch.randn(BATCH, TIME, DIM)
    heads = split_heads(x, HEADS)
    assert heads.shape == (BATCH, HEADS, TIME, DIM // HEADS)
    assert torch.equal(heads[:, 1, 2], x[:, 2, 4:8])
    assert torch.equal(merge_heads(heads), x)


def test_the_axes_in_signatures_are_executed() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        split_heads(torch.randn(TIME, DIM), HEADS)
    with pytest.raises(jaxtyping.TypeCheckError):
        Attention(DIM, HEADS)(torch.randn(BATCH, TIME, DIM), allowed=torch.zeros(BATCH, 1, TIME, TIME))


def repeated(weight: Tensor, num_kv_heads: int) -> Tensor:
    """The rows of each key-value head, once for every query head that shares it."""
    heads = weight.unflatten(0, (num_kv_heads, -1))
    return heads.repeat_interleave(HEADS // num_kv_heads, dim=0).flatten(0, 1)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("kernel", KERNELS)
def test_shared_heads_equal_multi_head_attention_with_repeated_weights(kernel: str, num_kv_heads: int) -> None:
    shared = Attention(DIM, HEADS, num_kv_heads=num_kv_heads, kernel=kernel)
    full = Attention(DIM, HEADS, kernel=kernel)
    weights = dict(shared.state_dict())
    for name in ("key.weight", "key.bias", "value.weight", "value.bias"):
        weights[name] = repeated(weights[name], num_kv_heads)
    full.load_state_dict(weights)
    x, wanted = torch.randn(BATCH, TIME, DIM, requires_grad=True), torch.randn(BATCH, TIME, DIM)
    outputs, gradients = [], []
    for attention in (shared, full):
        outputs.append(attention(x, causal=True))
        gradients.append(torch.autograd.grad((outputs[-1] * wanted).sum(), [x, attention.value.weight]))
    torch.testing.assert_close(*outputs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradients[0][0], gradients[1][0], atol=1e-5, rtol=1e-5)
    summed = gradients[1][1].unflatten(0, (num_kv_heads, HEADS // num_kv_heads, -1)).sum(1).flatten(0, 1)
    torch.testing.assert_close(gradients[0][1], summed, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_fewer_key_value_heads_keep_less(num_kv_heads: int) -> None:
    attention = Attention(DIM, HEADS, num_kv_heads=num_kv_heads)
    key, value = attention.remember(torch.randn(BATCH, TIME, DIM))
    assert key.shape == value.shape == (BATCH, num_kv_heads, TIME, DIM // HEADS)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_remembered_context_equals_the_context(kernel: str) -> None:
    attention = Attention(DIM, HEADS, num_kv_heads=2, kernel=kernel)
    x, context = torch.randn(BATCH, 3, DIM), torch.randn(BATCH, TIME, DIM)
    allowed = masks.padding(torch.arange(TIME) < torch.tensor([[6], [2]]))
    torch.testing.assert_close(
        attention(x, attention.remember(context), allowed=allowed), attention(x, context, allowed=allowed)
    )


@torch.no_grad()
@pytest.mark.parametrize("chunks", [[1] * TIME, [2, 3, 1], [5, 1], [TIME]])
@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_cached_equals_uncached(kernel: str, name: str, chunks: list[int]) -> None:
    attention, scheme, cache = Attention(DIM, HEADS, kernel=kernel), positions(name), KeyValueCache(capacity=1)
    x = torch.randn(BATCH, TIME, DIM)
    whole = attention(x, causal=True, positions=scheme)
    steps = [attention(part, causal=True, positions=scheme, cache=cache) for part in x.split(chunks, dim=1)]
    assert cache.length == TIME
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_query_that_may_see_nothing_gives_the_output_bias(kernel: str) -> None:
    attention = Attention(DIM, HEADS, kernel=kernel)
    x = torch.randn(BATCH, TIME, DIM, requires_grad=True)
    allowed = masks.padding(torch.tensor([[True] * TIME, [False] * TIME]))
    output = attention(x, allowed=allowed)
    assert torch.equal(output[1], attention.output.bias.expand(TIME, DIM))
    (gradient,) = torch.autograd.grad(output.square().sum(), x)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_dropout_acts_in_training_only(kernel: str) -> None:
    attention = Attention(DIM, HEADS, dropout=0.5, kernel=kernel)
    x = torch.randn(BATCH, TIME, DIM)
    assert not torch.allclose(attention(x), attention(x))
    attention.eval()
    assert torch.equal(attention(x), attention(x))


def test_the_width_of_a_head_may_be_chosen() -> None:
    attention = Attention(DIM, 3, head_dim=5)
    assert attention.query.out_features == attention.output.in_features == 15
    assert attention(torch.randn(BATCH, TIME, DIM)).shape == (BATCH, TIME, DIM)


def test_projections_may_go_without_bias() -> None:
    assert all(name.endswith("weight") for name, _ in Attention(DIM, HEADS, projection_bias=False).named_parameters())
    assert sum(isinstance(module, nn.Linear) for module in Attention(DIM, HEADS).modules()) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 16, "num_heads": 3}, "dim 16 cannot be cut into 3 heads: choose num_heads that divides it"),
        ({"dim": 16, "num_heads": 0}, "dim 16 cannot be cut into 0 heads: choose num_heads that divides it"),
        ({"dim": 16, "num_heads": 4, "num_kv_heads": 3}, "num_heads 4 must be a multiple of num_kv_heads 3"),
        ({"dim": 16, "num_heads": 4, "num_kv_heads": 8}, "num_heads 4 must be a multiple of num_kv_heads 8"),
        ({"dim": 16, "num_heads": 4, "num_kv_heads": 0}, "num_heads 4 must be a multiple of num_kv_heads 0"),
        ({"dim": 16, "num_heads": 4, "kernel": "fuse"}, "unknown kernel 'fuse': did you mean 'fused'?"),
    ],
)
def test_sizes_that_do_not_fit_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Attention(**settings)
    assert str(error.value) == message
