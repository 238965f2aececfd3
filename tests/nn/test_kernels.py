"""Every kernel against attention spelled out in loops, and the laws that hold for all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clearhead.nn import masks
from clearhead.nn.kernels import KERNELS, SHORT, Auto, Batched, Exact, share_heads

BATCH, HEADS, TIME, HEAD_DIM = 2, 4, 5, 8


def random_mask() -> Tensor:
    return torch.rand(BATCH, HEADS, TIME, TIME) < 0.6


def mask_with_blind_rows() -> Tensor:
    allowed = random_mask()
    allowed[0, :, 1] = False
    allowed[1, 2] = False
    return allowed


def nothing_allowed() -> Tensor:
    return torch.zeros(1, 1, 1, TIME, dtype=torch.bool)


MASKS: dict[str, Callable[[], Tensor | None]] = {
    "everything": lambda: None,
    "padding": lambda: masks.padding(torch.arange(TIME) < torch.tensor([[TIME], [2]])),
    "padding with an empty row": lambda: masks.padding(torch.arange(TIME) < torch.tensor([[3], [0]])),
    "causal": lambda: masks.causal(TIME, TIME)[None, None],
    "window": lambda: masks.sliding_window(TIME, TIME, 2)[None, None],
    "random": random_mask,
    "random with blind rows": mask_with_blind_rows,
    "nothing": nothing_allowed,
}


def tensors(num_kv_heads: int, query_len: int = TIME, key_len: int = TIME) -> list[Tensor]:
    shape = (BATCH, num_kv_heads, key_len, HEAD_DIM)
    return [torch.randn(BATCH, HEADS, query_len, HEAD_DIM), torch.randn(shape), torch.randn(shape)]


def forward_and_backward(attend: Callable[..., Tensor], inputs: list[Tensor], **options: object) -> list[Tensor]:
    """The output, and the gradients of query, key and value."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    output = attend(*leaves, **options)
    wanted = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    return [output.detach(), *torch.autograd.grad((output * wanted).sum(), leaves)]


def by_loops(query: Tensor, key: Tensor, value: Tensor, *, allowed: Tensor | None, bias: Tensor | None) -> Tensor:
    batch, heads, query_len, head_dim = query.shape
    everything = torch.ones(batch, heads, query_len, key.shape[2], dtype=torch.bool)
    allowed = everything if allowed is None else allowed & everything
    mixed = query * 0 + key.sum() * 0 + value.sum() * 0
    for b, h, q in itertools.product(range(batch), range(heads), range(query_len)):
        shared = h * key.shape[1] // heads
        seen = allowed[b, h, q].nonzero().flatten()
        scores = key[b, shared, seen] @ query[b, h, q] / math.sqrt(head_dim)
        if bias is not None:
            scores = scores + bias[h % len(bias), q, seen]
        mixed[b, h, q] = scores.softmax(0) @ value[b, shared, seen]
    return mixed


def assert_all_close(first: list[Tensor], second: list[Tensor], tolerance: float = 1e-5) -> None:
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_every_kernel_equals_the_loops(num_kv_heads: int, mask: str, biased: bool) -> None:
    inputs, allowed = tensors(num_kv_heads), MASKS[mask]()
    bias = torch.randn(HEADS, TIME, TIME) if biased else None
    expected = forward_and_backward(by_loops, inputs, allowed=allowed, bias=bias)
    for kernel in KERNELS.values():
        assert_all_close(forward_and_backward(kernel(), inputs, allowed=allowed, bias=bias), expected)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_causal_equals_the_causal_mask_in_every_kernel(mask: str, biased: bool) -> None:
    inputs, allowed, bias = tensors(2), MASKS[mask](), torch.randn(HEADS, TIME, TIME) if biased else None
    past = masks.both(allowed, masks.causal(TIME, TIME)[None, None])
    expected = forward_and_backward(by_loops, inputs, allowed=past, bias=bias)
    for kernel in KERNELS.values():
        result = forward_and_backward(kernel(), inputs, allowed=allowed, bias=bias, causal=True)
        assert_all_close(result, expected)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("query_len", "key_len"), [(1, 6), (3, 6), (6, 3), (18, 20)])
def test_causal_puts_the_last_query_at_the_last_key(kernel: str, query_len: int, key_len: int) -> None:
    inputs = tensors(4, query_len, key_len)
    expected = forward_and_backward(by_loops, inputs, allowed=masks.causal(query_len, key_len)[None, None], bias=None)
    assert_all_close(forward_and_backward(KERNELS[kernel](), inputs, causal=True), expected)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(
    sizes=st.tuples(*[st.integers(1, 3)] * 2, *[st.integers(1, 6)] * 2, st.integers(1, 5)),
    group=st.integers(1, 3),
    mask_axes=st.none() | st.tuples(st.booleans(), st.booleans(), st.booleans()),
    density=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
    bias_heads=st.sampled_from(["none", "one", "each"]),
    causal=st.booleans(),
    seed=st.integers(0, 99),
)
def test_all_kernels_agree(
    sizes: tuple[int, ...],
    group: int,
    mask_axes: tuple[bool, bool, bool] | None,
    density: float,
    bias_heads: str,
    causal: bool,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    batch, kv_heads, query_len, key_len, head_dim = sizes
    heads = kv_heads * group
    inputs = [torch.randn(batch, heads, query_len, head_dim)]
    inputs += [torch.randn(batch, kv_heads, key_len, head_dim) for _ in range(2)]
    allowed = bias = None
    if mask_axes is not None:
        axes = [n if full else 1 for n, full in zip((batch, heads, query_len), mask_axes, strict=True)]
        allowed = torch.rand(*axes, key_len) < density
    if bias_heads != "none":
        bias = torch.randn(heads if bias_heads == "each" else 1, query_len, key_len)
    results = [
        forward_and_backward(kernel(), inputs, allowed=allowed, bias=bias, causal=causal) for kernel in KERNELS.values()
    ]
    for result in results:
        assert all(x.isfinite().all() for x in result)
        assert_all_close(result, results[0])


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_row_that_may_see_nothing_gives_zeros_and_finite_gradients(kernel: str, biased: bool) -> None:
    inputs, allowed = tensors(2), mask_with_blind_rows()
    bias = torch.randn(HEADS, TIME, TIME) if biased else None
    # Not even in passing: this mode raises at the first NaN anywhere in the backward pass.
    with torch.autograd.set_detect_anomaly(True):
        output, *gradients = forward_and_backward(KERNELS[kernel](), inputs, allowed=allowed, bias=bias)
    blind = ~allowed.any(-1)
    assert blind.any()
    assert (output[blind] == 0).all()
    assert (output[~blind].abs().sum(-1) > 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[0][blind] == 0).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_huge_scores_stay_finite(kernel: str) -> None:
    inputs = [x * 1e4 for x in tensors(4)]
    for x in forward_and_backward(KERNELS[kernel](), inputs, allowed=mask_with_blind_rows()):
        assert x.isfinite().all()


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_half_precision_is_close_to_full(kernel: str, mask: str, biased: bool) -> None:
    inputs, allowed = tensors(2), MASKS[mask]()
    bias = torch.randn(HEADS, TIME, TIME) if biased else None
    full = forward_and_backward(KERNELS[kernel](), inputs, allowed=allowed, bias=bias)
    half = forward_and_backward(KERNELS[kernel](), [x.bfloat16() for x in inputs], allowed=allowed, bias=bias)
    assert all(x.dtype == torch.bfloat16 for x in half)
    assert_all_close([x.float() for x in half], full, tolerance=0.06)


@pytest.mark.parametrize("kernel", KERNELS)
def test_dropout_keeps_the_mean_and_nothing_else(kernel: str) -> None:
    rows = 4000
    query, key, value = (x[:1, :1].expand(rows, 1, TIME, HEAD_DIM) for x in tensors(1))
    whole = KERNELS[kernel]()(query, key, value)
    thinned = KERNELS[kernel]()(query, key, value, dropout=0.3)
    assert not torch.allclose(thinned[0], thinned[1])
    torch.testing.assert_close(thinned.mean(0), whole[0], atol=0.08, rtol=0)


@pytest.mark.parametrize("mask", MASKS)
def test_the_weights_can_be_listened_to_and_each_row_sums_to_one_or_nothing(mask: str) -> None:
    kernel, heard = Exact(), []
    kernel.softmax.register_forward_hook(lambda module, inputs, output: heard.append(output))
    query, key, value = tensors(2)
    allowed = MASKS[mask]()
    output = kernel(query, key, value, allowed=allowed)
    (weights,) = heard
    seen = torch.ones_like(weights, dtype=torch.bool) if allowed is None else allowed.expand_as(weights)
    assert (weights[~seen] == 0).all()
    torch.testing.assert_close(weights.sum(-1), seen.any(-1).float())
    torch.testing.assert_close(weights @ share_heads(value, HEADS), output)


def test_each_key_value_head_is_shared_by_neighbouring_query_heads() -> None:
    x = torch.randn(BATCH, 2, TIME, HEAD_DIM)
    shared = share_heads(x, 6)
    for head in range(6):
        assert torch.equal(shared[:, head], x[:, head // 3])


@pytest.mark.parametrize(
    ("key_len", "training", "chosen"),
    [(SHORT, True, "batched"), (SHORT + 1, True, "fused"), (SHORT, False, "fused")],
)
def test_auto_takes_batched_products_for_short_sequences_in_training_only(
    key_len: int, training: bool, chosen: str
) -> None:
    kernel, asked = Auto(), []
    for name, part in kernel.named_children():
        part.register_forward_hook(lambda module, inputs, output, name=name: asked.append(name))
    query, key, value = tensors(HEADS, 3, key_len)
    kernel(query.requires_grad_(training), key, value)
    assert asked == [chosen]


def test_a_bias_that_is_trained_gets_its_gradient_from_batched_products() -> None:
    inputs, gradients = tensors(HEADS), []
    bias = torch.randn(HEADS, TIME, TIME, requires_grad=True)
    for kernel in (Exact(), Batched()):
        output = kernel(*inputs, bias=bias)
        gradients.append(torch.autograd.grad(output.square().sum(), bias)[0])
    torch.testing.assert_close(*gradients)
