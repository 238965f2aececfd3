"""Streams without padding: there and back, and the same numbers as with it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from tests.nn.test_stacks import CAUSAL_VARIANTS, VARIANTS, as_id, lengths, tokens
from torch import Tensor

from clearhead.nn.attention import merge_heads, split_heads
from clearhead.nn.gapless import Gapless
from clearhead.nn.norms import NORMS
from clearhead.nn.reduction import Merge
from clearhead.nn.stacks import Stack
from clearhead.nn.tokens import Tokens

NewStack = Callable[..., Stack]
REAL = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
SPARE = (None, len(REAL) + 2)


def padded(width: int = 12) -> Tensor:
    return torch.randn(*REAL.shape, width, dtype=torch.double) * REAL[..., None]


@pytest.mark.parametrize("sequences", SPARE)
def test_padding_goes_and_comes_back_as_zeros(sequences: int | None) -> None:
    x, gapless = padded(), Gapless(REAL, sequences)
    assert torch.equal(gapless.closed(x), x[REAL][None])
    assert torch.equal(gapless.opened(x[REAL][None]), x)


@pytest.mark.parametrize("sequences", SPARE)
@pytest.mark.parametrize("num_heads", [1, 2, 3])
def test_heads_lie_as_they_would_with_padding(num_heads: int, sequences: int | None) -> None:
    x, gapless = padded(), Gapless(REAL, sequences)
    laid = split_heads(x[REAL][None], num_heads, gapless)
    assert torch.equal(laid[: len(x)], split_heads(x, num_heads))
    assert not laid[len(x) :].any()
    assert torch.equal(merge_heads(laid, gapless), x[REAL][None])


@pytest.mark.parametrize("axes", [(0, 1, 2), (0, 2, 1)], ids=["a part of a row", "turned"])
def test_heads_of_what_lies_beside_something_else_are_found(axes: tuple[int, ...]) -> None:
    beside = torch.randn(1, int(REAL.sum()), 36, dtype=torch.double)
    x = beside[..., 12:24].permute(axes).contiguous().permute(axes) if axes != (0, 1, 2) else beside[..., 12:24]
    assert torch.equal(split_heads(x, 3, Gapless(REAL)), split_heads(x.contiguous(), 3, Gapless(REAL)))


@pytest.mark.parametrize("sequences", SPARE)
def test_gradients_are_those_of_what_was_done(sequences: int | None) -> None:
    gapless = Gapless(torch.tensor([[True, True, False], [False, False, False], [True, False, False]]), sequences)
    joined = torch.randn(1, 3, 12, dtype=torch.double, requires_grad=True)
    laid = torch.randn(gapless.sequences, 2, 3, 2, dtype=torch.double, requires_grad=True)
    x = torch.randn(3, 3, 4, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: split_heads(x[..., 4:8], 2, gapless), joined)
    assert torch.autograd.gradcheck(lambda x: merge_heads(x, gapless), laid)
    assert torch.autograd.gradcheck(gapless.closed, x)
    assert torch.autograd.gradcheck(lambda x: gapless.opened(x[..., :4]), joined)


def learnt(
    stack: Stack, *, skips: bool, context: Tensor | None, real: Tensor | None, seen: Tensor | None
) -> list[Tensor]:
    """Real outputs and all gradients, by one of two ways."""
    torch.manual_seed(1)
    stack, x = copy.deepcopy(stack).train(), tokens(batch=4).requires_grad_()
    stack.skips_padding = skips
    context = None if context is None else context.clone().requires_grad_()
    output = stack(x, real=real, context=context, context_real=seen)
    output = output if real is None else output[real]
    (output * torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)).sum().backward()
    leaves = [x, *stack.parameters(), *([] if context is None else [context])]
    return [output.detach(), *(leaf.grad for leaf in leaves), *stack.buffers()]


def assert_same(stack: Stack, **how: Tensor | None) -> None:
    for one, other in zip(learnt(stack, skips=True, **how), learnt(stack, skips=False, **how), strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("variant", VARIANTS, ids=as_id)
def test_an_encoder_learns_the_same_without_padding(new_stack: NewStack, variant: dict[str, object]) -> None:
    assert_same(new_stack(**variant), real=REAL, context=None, seen=None)


@pytest.mark.parametrize("real", [lengths(5, 5, 2, 1, 4), None], ids=["padding", "none"])
@pytest.mark.parametrize("seen", [lengths(6, 2, 6, 1, 3), None], ids=["padding seen", "none seen"])
@pytest.mark.parametrize("variant", CAUSAL_VARIANTS, ids=as_id)
def test_a_decoder_learns_the_same_without_padding(
    new_stack: NewStack, variant: dict[str, object], real: Tensor | None, seen: Tensor | None
) -> None:
    assert_same(new_stack(**variant, causal=True, cross=True), real=real, context=tokens(batch=4, time=6), seen=seen)


@pytest.mark.parametrize("settings", [{"num_kv_heads": 2}, {"window": 2}, {"heads": [[0, 2, 3], [1]]}])
def test_so_do_fewer_heads_and_windows(new_stack: NewStack, settings: dict[str, object]) -> None:
    assert_same(new_stack(**settings, kernel="batched"), real=REAL, context=None, seen=None)


def test_in_bf16_there_are_as_many_sequences_as_products_like(new_stack: NewStack) -> None:
    stack, x, real = new_stack(kernel="batched").float(), tokens(batch=9).float(), lengths(5, 5, 4, 3, 2, 1, 5, 4, 3, 2)
    shapes: list[torch.Size] = []
    for block in stack.blocks:
        block.attention.kernel.register_forward_pre_hook(lambda kernel, given: shapes.append(given[0].shape))
    wanted = stack(x, real=real)[real]
    assert {shape[0] for shape in shapes} == {9}
    shapes.clear()
    with torch.autocast("cpu", torch.bfloat16):
        found = stack(x.requires_grad_(), real=real)
    # 9 sequences of 4 heads are 36, and 64 is the next number of rows.
    assert {shape[:2] for shape in shapes} == {(16, 4)}
    torch.testing.assert_close(found[real].float(), wanted, rtol=0.1, atol=0.1)
    found.float().square().sum().backward()
    assert x.grad is not None and x.grad.isfinite().all() and not x.grad[~real].any()


def closing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often padding is left out from here on."""
    closed: list[int] = []
    plain = Tokens.closed

    def counted(self: Tokens, sequences: int) -> Tokens:
        closed.append(sequences)
        return plain(self, sequences)

    monkeypatch.setattr(Tokens, "closed", counted)
    return closed


def test_padding_is_left_out_only_while_there_is_something_to_learn(
    new_stack: NewStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, x = new_stack(), tokens(batch=4)
    closed = closing(monkeypatch)
    stack(x, real=REAL)
    assert not closed
    stack(x.requires_grad_())
    assert not closed, "there is no padding"
    with torch.no_grad():
        stack(x, real=REAL)
    assert not closed
    stack(x, real=REAL)
    assert closed == [4]


@pytest.mark.parametrize("norm", [name for name, kind in NORMS.items() if kind.mixes_time])
def test_norms_over_a_sequence_are_given_sequences(
    new_stack: NewStack, monkeypatch: pytest.MonkeyPatch, norm: str
) -> None:
    stack = new_stack(norm=norm)
    closed = closing(monkeypatch)
    stack(tokens(batch=4).requires_grad_(), real=REAL)
    assert not closed


def test_tokens_that_become_fewer_are_given_sequences(new_stack: NewStack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = new_stack(reductions=[Merge(layer=layer, num_layers=2, r=1) for layer in range(2)])
    closed = closing(monkeypatch)
    stack.run(Tokens(tokens(batch=4).requires_grad_(), REAL))
    assert not closed


def test_texts_that_share_a_row_and_pasts_keep_theirs(new_stack: NewStack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack, x = new_stack(), tokens(batch=4).requires_grad_()
    closed = closing(monkeypatch)
    stack(x, real=REAL, texts=torch.zeros(4, 5, dtype=torch.long))
    decoder = new_stack(causal=True)
    decoder(x, real=REAL, cache=decoder.new_cache())
    assert not closed


def test_a_batch_of_padding_only_is_no_harm(new_stack: NewStack) -> None:
    stack, x = new_stack().train(), tokens(batch=4).requires_grad_()
    output = stack(x, real=torch.zeros(4, 5, dtype=torch.bool))
    output.sum().backward()
    assert output.shape == x.shape and x.grad is not None and x.grad.isfinite().all()
