"""Attention, blocks and stacks equal torch's own with the same weights, forward and backward, at real positions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from clearhead.nn import masks
from clearhead.nn.attention import Attention
from clearhead.nn.kernels import KERNELS
from clearhead.nn.residual import RESIDUALS
from clearhead.nn.stacks import Block, Stack, build_stack
from clearhead.nn.tokens import Tokens

BATCH, SOURCE, TARGET, DIM, HEADS, FF_DIM = 3, 6, 5, 16, 4, 24
ARRANGEMENTS = {"pre": True, "post": False}
NAMES = {
    "self_attn": "attention",
    "multihead_attn": "cross",
    "out_proj": "output",
    "linear1": "feedforward.inner",
    "linear2": "feedforward.outer",
    "norm1": "around_attention.norm",
    "norm": "final_norm",
    "layers": "blocks",
}
LAST_NORMS = {
    "encoder": {"norm2": "around_feedforward.norm"},
    "decoder": {"norm2": "around_cross.norm", "norm3": "around_feedforward.norm"},
}


def in_our_names(tensors: dict[str, Tensor], side: str = "encoder") -> dict[str, Tensor]:
    """torch's weights (or their gradients) under our names, with the packed projection cut in three."""
    names, ours = {**NAMES, **LAST_NORMS[side]}, {}
    for path, tensor in tensors.items():
        name = ".".join(names.get(part, part) for part in path.split("."))
        if "in_proj_" in name:
            for part, piece in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                ours[name.replace("in_proj_", part + ".")] = piece
        else:
            ours[name] = tensor
    return ours


def copy_weights(ours: nn.Module, theirs: nn.Module, side: str = "encoder") -> None:
    """Random weights for torch's module (its own are ones and zeros in places), then the same for ours."""
    for parameter in theirs.parameters():
        parameter.data.normal_(std=0.3)
    ours.load_state_dict(in_our_names(dict(theirs.state_dict()), side))


def lengths(time: int, *counts: int) -> Tensor:
    return torch.arange(time) < torch.tensor(counts)[:, None]


def results(run: Callable[..., Tensor], module: nn.Module, real: Tensor | None, *inputs: Tensor) -> list[Tensor]:
    """Real outputs, and the gradients of inputs from a loss over them; the module keeps its own gradients."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    module.zero_grad()
    output = run(*leaves)
    if real is not None:
        output = output[real]
    wanted = torch.linspace(-1, 1, output.numel()).view_as(output)
    (output * wanted).sum().backward()
    return [output.detach(), *(x.grad for x in leaves)]


def assert_equal(ours: list[Tensor], theirs: list[Tensor]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)


def assert_same_gradients(ours: nn.Module, theirs: nn.Module, side: str = "encoder") -> None:
    mine = {name: parameter.grad for name, parameter in ours.named_parameters()}
    other = in_our_names({name: parameter.grad for name, parameter in theirs.named_parameters()}, side)
    assert mine.keys() == other.keys()
    for name, gradient in mine.items():
        torch.testing.assert_close(gradient, other[name], atol=1e-5, rtol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


def hidden(real: Tensor | None) -> Tensor | None:
    """torch's masks say True where nobody may look."""
    return None if real is None else ~real


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_self_attention(kernel: str, padded: bool, causal: bool) -> None:
    ours, theirs = Attention(DIM, HEADS, kernel=kernel), nn.MultiheadAttention(DIM, HEADS, batch_first=True)
    copy_weights(ours, theirs)
    real = lengths(TARGET, 5, 3, 1) if padded else None
    future = ~masks.causal(TARGET, TARGET) if causal else None
    allowed = masks.padding(real) if real is not None else None
    x = torch.randn(BATCH, TARGET, DIM)
    mine = results(lambda x: ours(x, allowed=allowed, causal=causal), ours, real, x)
    other = results(
        lambda x: theirs(x, x, x, key_padding_mask=hidden(real), attn_mask=future, need_weights=False)[0],
        theirs,
        real,
        x,
    )
    assert_equal(mine, other)
    assert_same_gradients(ours, theirs)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_cross_attention(kernel: str, padded: bool, masked: bool) -> None:
    ours, theirs = Attention(DIM, HEADS, kernel=kernel), nn.MultiheadAttention(DIM, HEADS, batch_first=True)
    copy_weights(ours, theirs)
    source_real = lengths(SOURCE, 6, 4, 1) if padded else None
    allowed = masks.padding(source_real) if source_real is not None else None
    near = masks.sliding_window(TARGET, SOURCE, 7) if masked else None
    x, context = torch.randn(BATCH, TARGET, DIM), torch.randn(BATCH, SOURCE, DIM)
    both = masks.both(allowed, near[None, None] if near is not None else None)
    mine = results(lambda x, context: ours(x, context, allowed=both), ours, None, x, context)
    other = results(
        lambda x, context: theirs(
            x, context, context, key_padding_mask=hidden(source_real), attn_mask=hidden(near), need_weights=False
        )[0],
        theirs,
        None,
        x,
        context,
    )
    assert_equal(mine, other)
    assert_same_gradients(ours, theirs)


def test_the_weights_of_every_head_are_torchs() -> None:
    ours, theirs = Attention(DIM, HEADS, kernel="exact"), nn.MultiheadAttention(DIM, HEADS, batch_first=True)
    copy_weights(ours, theirs)
    x, heard = torch.randn(BATCH, TARGET, DIM), []
    ours.kernel.softmax.register_forward_hook(lambda module, inputs, output: heard.append(output))
    ours(x, causal=True)
    future = ~masks.causal(TARGET, TARGET)
    _, weights = theirs(x, x, x, attn_mask=future, average_attn_weights=False)
    assert_equal(heard, [weights])


def settings(residual: str, feedforward: str) -> dict[str, object]:
    return {
        "d_model": DIM,
        "nhead": HEADS,
        "dim_feedforward": FF_DIM,
        "dropout": 0.0,
        "activation": feedforward,
        "norm_first": ARRANGEMENTS[residual],
        "batch_first": True,
    }


def small_stack(**choices: object) -> Stack:
    sizes = {"dim": DIM, "num_heads": HEADS, "ff_dim": FF_DIM, "max_len": 8, "positions": "none"}
    return build_stack(**{**sizes, "num_layers": 1, **choices})


def only_block(stack: Stack) -> Block:
    (block,) = stack.blocks
    assert isinstance(block, Block)
    return block


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("feedforward", ["relu", "gelu"])
@pytest.mark.parametrize("residual", ARRANGEMENTS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_an_encoder_layer(kernel: str, residual: str, feedforward: str, padded: bool, causal: bool) -> None:
    ours = only_block(small_stack(residual=residual, feedforward=feedforward, kernel=kernel))
    theirs = nn.TransformerEncoderLayer(**settings(residual, feedforward))
    copy_weights(ours, theirs)
    real = lengths(SOURCE, 6, 3, 1) if padded else None
    allowed = masks.padding(real) if real is not None else None
    future = ~masks.causal(SOURCE, SOURCE) if causal else None
    x = torch.randn(BATCH, SOURCE, DIM)
    mine = results(lambda x: ours(Tokens(x, real), allowed=allowed, causal=causal).x, ours, real, x)
    other = results(lambda x: theirs(x, src_mask=future, src_key_padding_mask=hidden(real)), theirs, real, x)
    assert_equal(mine, other)
    assert_same_gradients(ours, theirs)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("feedforward", ["relu", "gelu"])
@pytest.mark.parametrize("residual", ARRANGEMENTS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_decoder_layer(kernel: str, residual: str, feedforward: str, padded: bool) -> None:
    ours = only_block(small_stack(residual=residual, feedforward=feedforward, kernel=kernel, causal=True, cross=True))
    theirs = nn.TransformerDecoderLayer(**settings(residual, feedforward))
    copy_weights(ours, theirs, "decoder")
    real = lengths(TARGET, 5, 4, 2) if padded else None
    source_real = lengths(SOURCE, 3, 6, 1) if padded else None
    context_allowed = masks.padding(source_real) if source_real is not None else None
    future = ~masks.causal(TARGET, TARGET)
    x, context = torch.randn(BATCH, TARGET, DIM), torch.randn(BATCH, SOURCE, DIM)
    mine = results(
        lambda x, context: ours(Tokens(x, real), causal=True, context=context, context_allowed=context_allowed).x,
        ours,
        real,
        x,
        context,
    )
    other = results(
        lambda x, context: theirs(
            x,
            context,
            tgt_mask=future,
            tgt_key_padding_mask=hidden(real),
            memory_key_padding_mask=hidden(source_real),
        ),
        theirs,
        real,
        x,
        context,
    )
    assert_equal(mine, other)
    assert_same_gradients(ours, theirs, "decoder")


def torch_stacks(residual: str) -> tuple[nn.TransformerEncoder, nn.TransformerDecoder]:
    """Two layers a side; with norms at the end where the arrangement asks for them, as nn.Transformer has them."""
    choices = settings(residual, "relu")
    final = RESIDUALS[residual].needs_final_norm
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**choices),
        2,
        norm=nn.LayerNorm(DIM) if final else None,
        enable_nested_tensor=False,
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**choices), 2, norm=nn.LayerNorm(DIM) if final else None)
    return encoder, decoder


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("residual", ARRANGEMENTS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_whole_transformer(kernel: str, residual: str, padded: bool) -> None:
    encoder = small_stack(num_layers=2, residual=residual, kernel=kernel)
    decoder = small_stack(num_layers=2, residual=residual, kernel=kernel, causal=True, cross=True)
    torch_encoder, torch_decoder = torch_stacks(residual)
    copy_weights(encoder, torch_encoder)
    copy_weights(decoder, torch_decoder, "decoder")
    real = lengths(TARGET, 2, 5, 3) if padded else None
    source_real = lengths(SOURCE, 4, 1, 6) if padded else None
    source, target = torch.randn(BATCH, SOURCE, DIM), torch.randn(BATCH, TARGET, DIM)

    def ours(source: Tensor, target: Tensor) -> Tensor:
        return decoder(target, real=real, context=encoder(source, real=source_real), context_real=source_real)

    def theirs(source: Tensor, target: Tensor) -> Tensor:
        memory = torch_encoder(source, src_key_padding_mask=hidden(source_real))
        return torch_decoder(
            target,
            memory,
            tgt_mask=~masks.causal(TARGET, TARGET),
            tgt_key_padding_mask=hidden(real),
            memory_key_padding_mask=hidden(source_real),
        )

    mine = results(ours, nn.ModuleList([encoder, decoder]), real, source, target)
    other = results(theirs, nn.ModuleList([torch_encoder, torch_decoder]), real, source, target)
    assert_equal(mine, other)
    assert_same_gradients(encoder, torch_encoder)
    assert_same_gradients(decoder, torch_decoder, "decoder")
