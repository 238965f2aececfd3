"""The laws of whole stacks, over every norm, residual arrangement, kernel, position scheme and feed-forward."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from clearhead.errors import ConfigError, DataError
from clearhead.nn.feedforward import FEED_FORWARDS
from clearhead.nn.kernels import KERNELS
from clearhead.nn.norms import NORMS, Norm
from clearhead.nn.positions import POSITIONS, Positions
from clearhead.nn.residual import RESIDUALS
from clearhead.nn.stacks import Stack
from clearhead.nn.tokens import Tokens

BATCH, TIME, SOURCE, DIM = 3, 5, 6, 16
NewStack = Callable[..., Stack]

CAUSAL_NORMS = [name for name, kind in NORMS.items() if not kind.mixes_time]
MIXING_NORMS = [name for name, kind in NORMS.items() if kind.mixes_time]
RELATIVE = [name for name, kind in POSITIONS.items() if kind.embed is Positions.embed]

FAMILIES = {
    "norm": NORMS,
    "residual": RESIDUALS,
    "kernel": KERNELS,
    "positions": POSITIONS,
    "feedforward": FEED_FORWARDS,
}
MEMBERS = [{family: name} for family, table in FAMILIES.items() for name in table]
"""Every member of every family once, the rest as it is by default."""
VARIANTS = [*MEMBERS, *({"norm": name, "embedding_norm": True, "norm_eps": 1e-2} for name in NORMS)]
"""The same, and every norm in all its places."""
CAUSAL_VARIANTS = [variant for variant in VARIANTS if variant.get("norm") not in MIXING_NORMS]


def as_id(variant: dict[str, object]) -> str:
    return "-".join(f"{family}-{name}" for family, name in variant.items()) or "default"


def tokens(batch: int = BATCH, time: int = TIME) -> Tensor:
    return torch.randn(batch, time, DIM, dtype=torch.double)


def lengths(time: int, *counts: int) -> Tensor:
    return torch.arange(time) < torch.tensor(counts)[:, None]


def assert_close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-8)


def products(*families: str, **others: list[object]) -> list[dict[str, object]]:
    """Every combination of the members of these families."""
    axes = {**{family: list(FAMILIES[family]) for family in families}, **others}
    return [dict(zip(axes, names, strict=True)) for names in itertools.product(*axes.values())]


# Norms ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize("norm", NORMS)
def test_all_norms_add_to_the_variance_what_was_asked_for(new_stack: NewStack, norm: str, residual: str) -> None:
    settings = {"norm": norm, "residual": residual, "embedding_norm": True}
    norms = [module for module in new_stack(**settings, norm_eps=0.25).modules() if isinstance(module, Norm)]
    assert len(norms) == 5 + RESIDUALS[residual].needs_final_norm
    assert {module.eps for module in norms} == {0.25}
    own = [module for module in new_stack(**settings).modules() if isinstance(module, Norm)]
    assert {module.eps for module in own} == {NORMS[norm](DIM).eps}


@pytest.mark.parametrize("norm", NORMS)
def test_a_norm_of_the_embeddings_stands_between_positions_and_blocks(new_stack: NewStack, norm: str) -> None:
    stack, x, real = new_stack(norm=norm, embedding_norm=True, positions="learned"), tokens(), lengths(TIME, 5, 3, 1)
    whole = stack(x, real=real)
    normed = stack.first_norm(stack.positions.embed(x), real)
    stack.first_norm, stack.positions = None, Positions(dim=DIM, num_heads=4, head_dim=4, max_len=12)
    assert_close(stack(normed, real=real)[real], whole[real])


# Padding -------------------------------------------------------------------------------------------------------------

PADDED = (
    products("norm", "residual", "kernel", "positions")
    + products("residual", "kernel", norm=CAUSAL_NORMS, causal=[True])
    + products("kernel", "positions", causal=[True])
)


def trained(stack: Stack, x: Tensor, real: Tensor) -> list[Tensor]:
    """Real outputs in training, the gradients of all parameters from a loss over them, and the running statistics."""
    stack = copy.deepcopy(stack).train()
    output = stack(x, real=real)[real]
    wanted = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    (output * wanted).sum().backward()
    return [output.detach(), *(p.grad for p in stack.parameters()), *stack.buffers()]


@pytest.mark.parametrize("variant", PADDED, ids=as_id)
def test_padding_does_not_change_the_rest(new_stack: NewStack, variant: dict[str, object]) -> None:
    stack, x, real = new_stack(**variant, num_layers=1), tokens(), lengths(TIME, 5, 3, 1)
    rubbish = torch.where(real[..., None], x, 10 * torch.randn_like(x))
    longer = torch.cat([rubbish, 10 * tokens(time=3)], dim=1)
    longer_real = torch.cat([real, torch.zeros(BATCH, 3, dtype=torch.bool)], dim=1)
    assert_close(stack(x, real=real)[real], stack(longer, real=longer_real)[longer_real])
    for one, other in zip(trained(stack, x, real), trained(stack, longer, longer_real), strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("variant", VARIANTS, ids=as_id)
def test_batched_equals_one_by_one(new_stack: NewStack, variant: dict[str, object]) -> None:
    stack, x, counts = new_stack(**variant), tokens(), (4, 5, 2)
    together = stack(x, real=lengths(TIME, *counts))
    for row, count in enumerate(counts):
        assert_close(stack(x[row : row + 1, :count])[0], together[row, :count])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_padding_does_not_change_the_rest_within_a_window(new_stack: NewStack, kernel: str, causal: bool) -> None:
    stack, x, real = new_stack(kernel=kernel, causal=causal, window=2), tokens(), lengths(TIME, 5, 3, 1)
    rubbish = torch.where(real[..., None], x, 10 * torch.randn_like(x))
    assert_close(stack(x, real=real)[real], stack(rubbish, real=real)[real])


@pytest.mark.parametrize("variant", CAUSAL_VARIANTS, ids=as_id)
def test_padding_of_the_context_does_not_change_the_rest(new_stack: NewStack, variant: dict[str, object]) -> None:
    stack, x, context = new_stack(**variant, causal=True, cross=True), tokens(), tokens(time=SOURCE)
    real = lengths(SOURCE, 6, 2, 1)
    rubbish = torch.where(real[..., None], context, 10 * torch.randn_like(context))
    longer = torch.cat([rubbish, 10 * tokens(time=2)], dim=1)
    expected = stack(x, context=context, context_real=real)
    assert_close(stack(x, context=longer, context_real=lengths(SOURCE + 2, 6, 2, 1)), expected)
    assert not torch.allclose(stack(x, context=rubbish), expected), "without its mask the padding is seen"


@pytest.mark.parametrize("variant", VARIANTS, ids=as_id)
def test_a_sequence_of_padding_only_gives_finite_output_and_gradients(
    new_stack: NewStack, variant: dict[str, object]
) -> None:
    stack = new_stack(**variant, cross=True).train()
    x, context = tokens().requires_grad_(), tokens(time=SOURCE).requires_grad_()
    output = stack(x, real=lengths(TIME, 5, 0, 2), context=context, context_real=lengths(SOURCE, 0, 6, 3))
    output.square().sum().backward()
    assert output.isfinite().all()
    assert all(leaf.grad.isfinite().all() for leaf in (x, context, *stack.parameters()))


# Time ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variant",
    products("residual", "kernel", "positions", norm=CAUSAL_NORMS) + products("kernel", "positions", window=[2]),
    ids=as_id,
)
def test_the_future_does_not_change_the_past(new_stack: NewStack, variant: dict[str, object]) -> None:
    stack, x = new_stack(**variant, causal=True), tokens(batch=1)
    # Row by row, another future begins one position later.
    past = torch.ones(TIME, TIME, dtype=torch.bool).tril()
    changed = torch.where(past[..., None], x, tokens(batch=TIME))
    before, after = stack(x).expand(TIME, TIME, DIM), stack(changed)
    assert_close(after[past], before[past])
    assert ((after - before)[~past].abs().amax(-1) > 1e-6).all()


@pytest.mark.parametrize("variant", CAUSAL_VARIANTS, ids=as_id)
def test_the_future_does_not_change_the_past_beside_a_context(new_stack: NewStack, variant: dict[str, object]) -> None:
    stack, x, context = new_stack(**variant, causal=True, cross=True), tokens(), tokens(time=SOURCE)
    changed = torch.cat([x[:, :2], tokens(time=TIME - 2)], dim=1)
    assert_close(stack(changed, context=context)[:, :2], stack(x, context=context)[:, :2])


@pytest.mark.parametrize("norm", MIXING_NORMS)
def test_a_norm_that_mixes_time_is_refused_in_a_causal_stack(new_stack: NewStack, norm: str) -> None:
    with pytest.raises(ConfigError) as error:
        new_stack(norm=norm, causal=True)
    fitting = ", ".join(sorted(CAUSAL_NORMS))
    assert str(error.value) == (
        f"norm '{norm}' looks at later positions, which a decoder must not: choose from {fitting}"
    )


def test_there_are_norms_of_both_kinds() -> None:
    assert set(CAUSAL_NORMS) >= {"layer", "rms", "batch"}
    assert set(MIXING_NORMS) >= {"instance", "group"}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_window_bounds_how_far_one_layer_sees(new_stack: NewStack, kernel: str, window: int, causal: bool) -> None:
    stack = new_stack(kernel=kernel, window=window, causal=causal, num_layers=1)
    x = tokens(batch=1).requires_grad_()
    for query, at in enumerate(stack(x)[0].sum(-1).square()):
        (gradient,) = torch.autograd.grad(at, x, retain_graph=True)
        seen = [query - key < window if key <= query else key - query < window and not causal for key in range(TIME)]
        assert (gradient[0].abs().sum(-1) > 0).tolist() == seen


# Positions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", products("norm", "residual", "kernel"), ids=as_id)
def test_without_positions_permuting_tokens_permutes_outputs(new_stack: NewStack, variant: dict[str, object]) -> None:
    stack, x, order = new_stack(**variant, positions="none"), tokens(), torch.randperm(TIME)
    assert_close(stack(x[:, order]), stack(x)[:, order])


@pytest.mark.parametrize("positions", [name for name in POSITIONS if name != "none"])
def test_with_positions_order_matters(new_stack: NewStack, positions: str) -> None:
    stack, x, order = new_stack(positions=positions), tokens(), torch.tensor([1, 0, 4, 2, 3])
    assert not torch.allclose(stack(x[:, order]), stack(x)[:, order], atol=1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("positions", POSITIONS)
def test_shifting_everything_changes_nothing_where_only_distance_counts(
    new_stack: NewStack, positions: str, kernel: str
) -> None:
    stack, x = new_stack(positions=positions, kernel=kernel), tokens()
    shifted = torch.cat([10 * tokens(time=4), x], dim=1)
    real = torch.arange(4 + TIME).expand(BATCH, -1) >= 4
    same = torch.allclose(stack(shifted, real=real)[:, 4:], stack(x), atol=1e-5)
    assert same == (positions in RELATIVE)


@pytest.mark.parametrize("positions", [name for name in POSITIONS if name != "learned"])
def test_max_len_is_no_limit_where_positions_are_computed(new_stack: NewStack, positions: str) -> None:
    x = tokens(time=9)
    short, long = new_stack(positions=positions, max_len=4), new_stack(positions=positions, max_len=64)
    assert_close(short(x), long(x))


def test_learned_positions_end_at_max_len(new_stack: NewStack) -> None:
    stack = new_stack(positions="learned", max_len=6, causal=True)
    cache = stack.new_cache()
    with torch.no_grad():
        stack(tokens(time=6), cache=cache)
        with pytest.raises(DataError, match="a sequence of 7 tokens is longer than the 6 learned positions"):
            stack(tokens(time=1), cache=cache)


# Cache ---------------------------------------------------------------------------------------------------------------

CACHED = products("positions", "kernel", num_kv_heads=[1, 2, 4], window=[None, 3])
CHUNKS = [[1] * 6, [3, 1, 2], [6]]


def in_chunks(
    stack: Stack, x: Tensor, chunks: list[int], context: Tensor | None = None, context_real: Tensor | None = None
) -> Tensor:
    cache = stack.new_cache(None if context is None else Tokens(context, context_real), capacity=2)
    steps = []
    for part in x.split(chunks, dim=1):
        steps.append(stack(part, cache=cache))
        assert cache.length == sum(step.shape[1] for step in steps)
    return torch.cat(steps, dim=1)


@torch.no_grad()
@pytest.mark.parametrize("variant", CACHED, ids=as_id)
def test_cached_equals_uncached(new_stack: NewStack, variant: dict[str, object]) -> None:
    stack, x = new_stack(**variant, causal=True, num_layers=1), tokens(time=6)
    whole = stack(x)
    for chunks in CHUNKS:
        assert_close(in_chunks(stack, x, chunks), whole)


@torch.no_grad()
@pytest.mark.parametrize("variant", CAUSAL_VARIANTS, ids=as_id)
def test_cached_equals_uncached_beside_a_remembered_context(new_stack: NewStack, variant: dict[str, object]) -> None:
    stack, x, context = new_stack(**variant, causal=True, cross=True), tokens(time=6), tokens(time=SOURCE)
    real = lengths(SOURCE, 6, 3, 1)
    whole = stack(x, context=context, context_real=real)
    for chunks in CHUNKS:
        assert_close(in_chunks(stack, x, chunks, context, real), whole)


@torch.no_grad()
@pytest.mark.parametrize("positions", [name for name in POSITIONS if name != "learned"])
def test_a_cache_may_grow_past_max_len(new_stack: NewStack, positions: str) -> None:
    stack, x = new_stack(positions=positions, max_len=4, causal=True), tokens(time=9)
    assert_close(in_chunks(stack, x, [1] * 9), stack(x))


@torch.no_grad()
@pytest.mark.parametrize("rows", [[2, 0, 1], [1, 1, 0, 1, 2], [0, 1, 1, 2, 2, 2], [2], []])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_selected_rows_equal_those_rows_alone(
    new_stack: NewStack, kernel: str, positions: str, rows: list[int]
) -> None:
    stack = new_stack(kernel=kernel, positions=positions, num_kv_heads=2, causal=True, cross=True)
    past, context, index = tokens(time=4), tokens(time=SOURCE), torch.tensor(rows, dtype=torch.long)
    real, new = lengths(SOURCE, 6, 3, 1), tokens(batch=len(rows), time=3)
    cache = stack.new_cache(Tokens(context, real), capacity=4)
    stack(past, cache=cache)
    chosen = cache.select(index)
    steps = [stack(part, cache=chosen) for part in new.split([1, 2], dim=1)]
    alone = stack(torch.cat([past[index], new], dim=1), context=context[index], context_real=real[index])
    assert_close(torch.cat(steps, dim=1), alone[:, 4:])
    assert cache.length == 4, "the cache that was selected from is as it was"


@torch.no_grad()
def test_a_call_without_a_cache_leaves_nothing_behind(new_stack: NewStack) -> None:
    stack, x = new_stack(causal=True, positions="rotary"), tokens()
    state = {name: tensor.clone() for name, tensor in stack.state_dict().items()}
    first = stack(x)
    stack(tokens())
    assert torch.equal(stack(x), first)
    assert all(torch.equal(tensor, state[name]) for name, tensor in stack.state_dict().items())


# Training ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("variant", VARIANTS, ids=as_id)
def test_every_parameter_gets_a_gradient(new_stack: NewStack, variant: dict[str, object], cross: bool) -> None:
    stack = new_stack(**variant, cross=cross).train()
    output = stack(tokens(), context=tokens(time=SOURCE) if cross else None)
    (output * torch.randn_like(output)).sum().backward()
    for name, parameter in stack.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # A shift of all keys moves every score alike, and a norm over positions takes any shift off again.
        if not name.endswith(".bias"):
            assert parameter.grad.abs().max() > 1e-8, name


def test_every_bias_but_that_of_the_keys_gets_a_gradient(new_stack: NewStack) -> None:
    stack = new_stack(cross=True)
    output = stack(tokens(), context=tokens(time=SOURCE))
    (output * torch.randn_like(output)).sum().backward()
    idle = {name for name, parameter in stack.named_parameters() if parameter.grad.abs().max() < 1e-8}
    assert idle == {f"blocks.{block}.{kind}.key.bias" for block in (0, 1) for kind in ("attention", "cross")}


@pytest.mark.parametrize("variant", [v for v in VARIANTS if "kernel" not in v], ids=as_id)
@pytest.mark.parametrize("kernel", KERNELS)
def test_all_kernels_agree_in_a_stack(new_stack: NewStack, kernel: str, variant: dict[str, object]) -> None:
    x, real = tokens(), lengths(TIME, 5, 3, 1)
    expected, agreed = (
        trained(new_stack(kernel=name, num_kv_heads=2, window=3, **variant), x, real) for name in ("exact", kernel)
    )
    for one, other in zip(expected, agreed, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("residual", RESIDUALS)
def test_batch_norm_in_a_stack_differs_between_training_and_inference(new_stack: NewStack, residual: str) -> None:
    stack, x = new_stack(norm="batch", residual=residual), tokens()
    inferred = stack(x)
    assert_close(stack(x[:1]), inferred[:1])
    assert not torch.allclose(stack.train()(x), inferred, atol=0.01)


@pytest.mark.parametrize("setting", ["dropout", "attention_dropout"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_dropout_acts_in_training_only(new_stack: NewStack, kernel: str, setting: str) -> None:
    stack, x = new_stack(kernel=kernel, **{setting: 0.5}), tokens()
    torch.testing.assert_close(stack(x), new_stack(kernel=kernel)(x))
    stack.train()
    assert not torch.allclose(stack(x), stack(x), atol=0.01)


@pytest.mark.parametrize("variant", VARIANTS + products("kernel", "positions", causal=[True]), ids=as_id)
def test_half_precision_is_close_to_full(new_stack: NewStack, variant: dict[str, object]) -> None:
    stack, x, real = new_stack(**variant), tokens().float(), lengths(TIME, 5, 4, 5)
    full = stack.float()(x, real=real)[real]
    with torch.autocast("cpu", torch.bfloat16):
        mixed = stack(x, real=real)[real]
    half = stack.bfloat16()(x.bfloat16(), real=real)[real]
    assert half.dtype == torch.bfloat16
    for output in (mixed.float(), half.float()):
        assert output.isfinite().all()
        assert (output - full).norm() < 0.05 * full.norm()


# Wiring --------------------------------------------------------------------------------------------------------------


def test_parameter_paths_can_be_read_aloud(new_stack: NewStack) -> None:
    paths = {name for name, _ in new_stack(cross=True, positions="learned").named_parameters()}
    assert paths >= {
        "positions.weight",
        "blocks.0.attention.query.weight",
        "blocks.0.around_attention.norm.weight",
        "blocks.1.cross.output.bias",
        "blocks.1.feedforward.inner.weight",
        "final_norm.weight",
    }


@pytest.mark.parametrize("residual", RESIDUALS)
def test_the_final_norm_is_there_where_the_arrangement_asks_for_it(new_stack: NewStack, residual: str) -> None:
    assert (new_stack(residual=residual).final_norm is not None) == RESIDUALS[residual].needs_final_norm


@pytest.mark.parametrize("num_layers", [1, 3])
def test_every_layer_has_its_own_weights(new_stack: NewStack, num_layers: int) -> None:
    stack = new_stack(num_layers=num_layers)
    weights = {id(block.attention.query.weight) for block in stack.blocks}
    assert len(stack.blocks) == len(weights) == num_layers
    norms = {id(block.around_attention.norm) for block in stack.blocks}
    assert len(norms | {id(block.around_feedforward.norm) for block in stack.blocks}) == 2 * num_layers


def test_looking_across_at_nothing_is_an_error(new_stack: NewStack) -> None:
    stack = new_stack(causal=True, cross=True)
    for cache in (None, stack.new_cache()):
        with pytest.raises(DataError) as error:
            stack(tokens(), cache=cache)
        assert str(error.value) == "these blocks look across at a context: give one, or a cache that was made with one"


KINDS = {
    "norm": "norm",
    "residual": "residual arrangement",
    "kernel": "kernel",
    "positions": "position scheme",
    "feedforward": "feed-forward",
}


@pytest.mark.parametrize("variant", MEMBERS, ids=as_id)
def test_a_misspelt_name_is_met_with_the_nearest(new_stack: NewStack, variant: dict[str, str]) -> None:
    ((family, name),) = variant.items()
    with pytest.raises(ConfigError) as error:
        new_stack(**{family: name + "x"})
    assert str(error.value) == f"unknown {KINDS[family]} '{name}x': did you mean '{name}'?"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_name_like_no_other_is_met_with_all(new_stack: NewStack, family: str) -> None:
    with pytest.raises(ConfigError) as error:
        new_stack(**{family: "?"})
    assert str(error.value) == f"unknown {KINDS[family]} '?': choose from: {', '.join(sorted(FAMILIES[family]))}"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_heads": 5}, "dim 16 cannot be cut into 5 heads: choose num_heads that divides it"),
        ({"num_kv_heads": 3}, "num_heads 4 must be a multiple of num_kv_heads 3"),
    ],
)
def test_sizes_that_do_not_fit_are_named(new_stack: NewStack, settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        new_stack(**settings)
    assert str(error.value) == message
