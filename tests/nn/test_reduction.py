"""The laws of fewer tokens, over every reduction: nothing where nothing is asked for, and nobody else's business."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from clearhead.errors import ConfigError
from clearhead.nn.kernels import KERNELS
from clearhead.nn.norms import NORMS
from clearhead.nn.positions import POSITIONS
from clearhead.nn.reduction import REDUCTIONS, build_reductions
from clearhead.nn.residual import RESIDUALS
from clearhead.nn.stacks import Stack
from clearhead.nn.tokens import Tokens

BATCH, TIME, DIM, LAYERS = 3, 10, 16, 2
COUNTS = (10, 7, 4)
NewStack = Callable[..., Stack]
AT_WORK = {"merge": {"r": 2}, "prune": {"threshold": 0.95}, "prune_hard": {"threshold": 0.95}}
"""Settings with which every reduction but none does something here."""
AT_REST = {"merge": {"r": 0}, "prune": {"threshold": 0.0}, "prune_hard": {"threshold": 0.0}, "none": {}}
"""Settings with which it does nothing."""


def some_tokens(batch: int = BATCH, time: int = TIME) -> Tensor:
    return torch.randn(batch, time, DIM, dtype=torch.double)


def lengths(time: int, *counts: int) -> Tensor:
    return torch.arange(time) < torch.tensor(counts)[:, None]


def first_is_special(batch: int = BATCH, time: int = TIME) -> Tensor:
    return (torch.arange(time) == 0).expand(batch, time)


def reduced(new_stack: NewStack, kind: str, how: dict[str, float], **settings: object) -> Stack:
    stack = new_stack(**{"num_layers": LAYERS, **settings})
    stack.reduce_by(build_reductions(kind, LAYERS, **how))
    return stack.double()


def assert_close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-8)


def test_every_reduction_is_tried_at_work_and_at_rest() -> None:
    assert AT_WORK.keys() == REDUCTIONS.keys() - {"none"}
    assert AT_REST.keys() == REDUCTIONS.keys()


# At rest -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", REDUCTIONS)
def test_where_nothing_is_asked_for_nothing_changes_to_the_bit(new_stack: NewStack, kind: str, kernel: str) -> None:
    plain, x, real = new_stack(kernel=kernel), some_tokens(), lengths(TIME, *COUNTS)
    stack = reduced(new_stack, kind, AT_REST[kind], kernel=kernel)
    for mask in (None, real):
        found = stack.run(Tokens(x, mask, first_is_special()))
        assert torch.equal(found.x, plain(x, real=mask))
        assert found.counts is None


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_where_nothing_is_asked_for_training_learns_the_same(new_stack: NewStack, kind: str) -> None:
    x, real = some_tokens(), lengths(TIME, *COUNTS)
    gradients = []
    for stack in (new_stack(kernel="exact"), reduced(new_stack, kind, AT_REST[kind], kernel="exact")):
        output = stack.train()(x, real=real)[real]
        (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()
        named = stack.named_parameters()
        gradients.append({name: p.grad for name, p in named if "threshold" not in name} | {"": output.detach()})
    assert gradients[0].keys() == gradients[1].keys()
    for name, wanted in gradients[0].items():
        assert torch.equal(gradients[1][name], wanted), name


# At work -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", AT_WORK)
def test_a_reduction_at_work_changes_something(new_stack: NewStack, kind: str, training: bool) -> None:
    stack, x = reduced(new_stack, kind, AT_WORK[kind]).train(training), some_tokens()
    found = stack.run(Tokens(x))
    if kind == "prune" and training:
        assert found.x.shape == x.shape
        assert found.counts is not None and found.counts.min() < 0.5
    else:
        assert found.x.shape[1] < TIME
        assert found.holder is not None


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("r", [1, 2, 4, 100])
def test_merged_sizes_sum_to_the_number_of_tokens(new_stack: NewStack, r: int, special: bool) -> None:
    stack, real = reduced(new_stack, "merge", {"r": r}), lengths(TIME, *COUNTS)
    found = stack.run(Tokens(some_tokens(), real, first_is_special() if special else None))
    assert found.counts is not None and found.holder is not None
    assert found.numbers.tolist() == list(COUNTS)
    for row, count in enumerate(COUNTS):
        held = found.holder[row]
        assert (held[:count] >= 0).all() and (held[count:] == -1).all()
        left = found.x.shape[1] if found.real is None else int(found.real[row].sum())
        sizes = torch.bincount(held[:count], minlength=left)
        assert sizes.tolist() == found.counts[row, :left].tolist()
        free = count - special
        for _ in range(LAYERS):
            free -= min(r, (free + 1) // 2 if free > 1 else 0)
        assert left == free + special


@pytest.mark.parametrize("kind", AT_WORK)
def test_special_tokens_are_never_merged_or_dropped(new_stack: NewStack, kind: str) -> None:
    how = {"r": 100} if kind == "merge" else {"threshold": 1000.0}
    stack, real = reduced(new_stack, kind, how), lengths(TIME, *COUNTS)
    special = torch.zeros(BATCH, TIME, dtype=torch.bool)
    special[:, [0, 3]] = True
    found = stack.run(Tokens(some_tokens(), real, special))
    assert found.holder is not None
    for row in range(BATCH):
        places = found.holder[row, [0, 3]]
        assert (places >= 0).all() and places[0] != places[1]
        for place in places.tolist():
            assert (found.holder[row] == place).sum() == 1
            assert found.counts is None or found.counts[row, place] == 1


@pytest.mark.parametrize("threshold", [0.5, 1.0, 1000.0])
def test_the_token_that_was_looked_at_most_always_stays(new_stack: NewStack, threshold: float) -> None:
    found = reduced(new_stack, "prune_hard", {"threshold": threshold}).run(
        Tokens(some_tokens(), lengths(TIME, *COUNTS))
    )
    left = torch.full((BATCH,), found.x.shape[1]) if found.real is None else found.real.sum(1)
    assert (left >= 1).all()
    assert (found.x.shape[1] == 1) == (threshold == 1000.0)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", AT_WORK)
@pytest.mark.parametrize("training", [False, True])
def test_batched_equals_one_by_one(new_stack: NewStack, kind: str, kernel: str, positions: str, training: bool) -> None:
    stack = reduced(new_stack, kind, AT_WORK[kind], kernel=kernel, positions=positions).train(training)
    x, special = some_tokens(), first_is_special()
    rubbish = torch.where(lengths(TIME, *COUNTS)[..., None], x, 10 * some_tokens())
    together = stack.run(Tokens(rubbish, lengths(TIME, *COUNTS), special))
    for row, count in enumerate(COUNTS):
        alone = stack.run(Tokens(x[row : row + 1, :count], None, special[row : row + 1, :count]))
        left = alone.x.shape[1]
        assert_close(together.x[row, :left], alone.x[0])
        assert together.real is None or together.real[row].sum() == left
        if together.holder is not None:
            holder = torch.arange(count) if alone.holder is None else alone.holder[0]
            assert torch.equal(together.holder[row, :count], holder)
        if alone.price is not None:
            assert_close(together.price[row], alone.price[0])


@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", AT_WORK)
def test_padding_does_not_change_the_rest(new_stack: NewStack, kind: str, norm: str, residual: str) -> None:
    stack = reduced(new_stack, kind, AT_WORK[kind], norm=norm, residual=residual)
    x, real = some_tokens(), lengths(TIME, *COUNTS)
    rubbish = torch.where(real[..., None], x, 10 * some_tokens())
    longer = torch.cat([rubbish, 10 * some_tokens(time=3)], dim=1)
    longer_real = torch.cat([real, torch.zeros(BATCH, 3, dtype=torch.bool)], dim=1)
    one, other = stack.run(Tokens(x, real)), stack.run(Tokens(longer, longer_real))
    assert one.x.shape == other.x.shape
    kept = torch.ones(one.x.shape[:2], dtype=torch.bool) if one.real is None else one.real
    assert_close(one.x[kept], other.x[kept])


@pytest.mark.parametrize("kind", AT_WORK)
def test_a_sequence_of_padding_only_gives_finite_output_and_gradients(new_stack: NewStack, kind: str) -> None:
    stack, x = reduced(new_stack, kind, AT_WORK[kind]).train(), some_tokens().requires_grad_()
    found = stack.run(Tokens(x, lengths(TIME, 10, 0, 3)))
    output = found.x.square().sum() + (0.0 if found.price is None else found.price.sum())
    output.backward()
    assert found.x.isfinite().all()
    assert x.grad is not None and x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in stack.parameters() if p.grad is not None)


# Merging -------------------------------------------------------------------------------------------------------------


def test_a_token_that_stands_for_many_is_seen_as_often(new_stack: NewStack) -> None:
    """Proportional attention: copies of a token and one token that counts for them all look the same to everybody."""
    stack, x = new_stack(), some_tokens(batch=1, time=4)
    copies = torch.cat([x, x[:, 3:], x[:, 3:]], dim=1)
    counts = torch.tensor([[1.0, 1.0, 1.0, 3.0]], dtype=torch.double)
    assert_close(stack.run(Tokens(x, counts=counts)).x, stack(copies)[:, :4])


def test_equal_tokens_can_be_merged_without_a_trace(new_stack: NewStack) -> None:
    x = some_tokens(time=5).repeat_interleave(2, dim=1)
    stack = reduced(new_stack, "merge", {"r": 5, "r_last": 0})
    found, whole = stack.run(Tokens(x)), new_stack()(x)
    assert found.x.shape[1] == 5
    assert_close(found.x.repeat_interleave(2, dim=1), whole)


@pytest.mark.parametrize("positions", ["rotary", "alibi"])
def test_a_token_keeps_its_position_when_others_leave(new_stack: NewStack, positions: str) -> None:
    stack, x = new_stack(positions=positions), some_tokens()
    kept = torch.tensor([True, False, True, True, False, False, True, False, False, True]).expand(BATCH, -1)
    hidden = stack(x, real=kept)[:, kept[0]]
    left = Tokens(x).only(kept)
    assert left.x.shape[1] == 5 and left.real is None
    assert_close(stack.run(left).x, hidden)


@pytest.mark.parametrize(("r", "r_last", "wanted"), [(8, None, [8, 8, 8]), (8, 0, [8, 4, 0]), (2, 6, [2, 4, 6])])
def test_r_changes_evenly_from_the_first_layer_to_the_last(r: int, r_last: int | None, wanted: list[int]) -> None:
    assert [layer.r for layer in build_reductions("merge", 3, r=r, r_last=r_last)] == wanted


# Pruning -------------------------------------------------------------------------------------------------------------


def test_what_is_dropped_is_what_was_looked_at_least(new_stack: NewStack) -> None:
    stack, x, real = reduced(new_stack, "prune_hard", {"threshold": 0.95}), some_tokens(), lengths(TIME, *COUNTS)
    heard: list[Tensor] = []
    softmaxes = []
    plain = new_stack(kernel="exact")
    first = plain.blocks[0].attention.kernel.softmax
    softmaxes.append(first.register_forward_hook(lambda module, inputs, weights: heard.append(weights)))
    plain(x, real=real)
    stack.reduce_by([stack.blocks[0].reduction, *build_reductions("none", LAYERS)[1:]])
    found = stack.run(Tokens(x, real))
    assert found.holder is not None
    threshold = stack.blocks[0].reduction.threshold.item()
    for row, count in enumerate(COUNTS):
        received = heard[0][row, :, :count, :count].mean((0, 1)) * count
        assert torch.equal(found.holder[row, :count] >= 0, received >= threshold)


def test_pruning_learns_softly_what_it_will_drop(new_stack: NewStack) -> None:
    """Within one layer, exactly the tokens that count for less than half are dropped in use."""
    stack = reduced(new_stack, "prune", {"threshold": 0.95})
    stack.reduce_by([stack.blocks[0].reduction, *build_reductions("none", LAYERS)[1:]])
    x, real = some_tokens(), lengths(TIME, *COUNTS)
    soft, hard = stack.train().run(Tokens(x, real)), stack.eval().run(Tokens(x, real))
    assert soft.counts is not None and hard.holder is not None
    assert torch.equal((soft.counts >= 0.5) & real, hard.holder >= 0)


def test_thresholds_feel_both_the_price_and_the_task(new_stack: NewStack) -> None:
    stack, x, real = reduced(new_stack, "prune", {"threshold": 0.95}).train(), some_tokens(), lengths(TIME, *COUNTS)
    found = stack.run(Tokens(x, real))
    assert found.price is not None
    thresholds = [block.reduction.threshold for block in stack.blocks]
    for grad in torch.autograd.grad(found.price.sum(), thresholds, retain_graph=True):
        assert grad.item() < 0, "a higher threshold costs less"
    task = (found.x[real] * torch.randn_like(found.x[real])).sum()
    # What the last layer drops changes nothing that comes after it but the means that are taken of it.
    (grad,) = torch.autograd.grad(task, thresholds[:1])
    assert grad.item() != 0


def test_the_price_is_the_share_of_tokens_that_count(new_stack: NewStack) -> None:
    stack = reduced(new_stack, "prune", {"threshold": 1e-6}).train()
    found = stack.run(Tokens(some_tokens(), lengths(TIME, *COUNTS)))
    assert found.price is not None
    assert found.price.tolist() == pytest.approx([1.0] * BATCH)
    assert stack.eval().run(Tokens(some_tokens())).price is None


def test_thresholds_rise_evenly_to_the_last_layer() -> None:
    found = [layer.threshold.item() for layer in build_reductions("prune", 4, threshold=0.8)]
    assert found == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_learnt_thresholds_are_those_that_are_used_hard(new_stack: NewStack) -> None:
    soft, hard = reduced(new_stack, "prune", {"threshold": 0.9}), reduced(new_stack, "prune_hard", {"threshold": 0.1})
    hard.load_state_dict(soft.state_dict())
    x = some_tokens()
    assert torch.equal(soft.run(Tokens(x)).x, hard.run(Tokens(x)).x)
    assert not [name for name, _ in hard.named_parameters() if "threshold" in name]


@torch.no_grad()
@pytest.mark.parametrize("kind", ["prune", "prune_hard"])
def test_many_sequences_are_heard_a_few_at_a_time(
    new_stack: NewStack, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, x, real = reduced(new_stack, kind, AT_WORK[kind]), some_tokens(), lengths(TIME, *COUNTS)
    whole = stack.run(Tokens(x, real))
    monkeypatch.setattr("clearhead.nn.kernels.CACHED_SCORES", 1)
    parts = stack.run(Tokens(x, real))
    assert_close(parts.x, whole.x)
    assert torch.equal(parts.holder, whole.holder)


# Wiring --------------------------------------------------------------------------------------------------------------


def test_texts_that_share_a_row_do_not_become_fewer(new_stack: NewStack) -> None:
    texts = torch.tensor([[0] * 5 + [1] * 5]).expand(BATCH, -1)
    new_stack()(some_tokens(), texts=texts)
    with pytest.raises(ConfigError, match=r"^tokens cannot become fewer where several texts share a row"):
        reduced(new_stack, "merge", {"r": 2})(some_tokens(), texts=texts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"causal": True}, "a decoder's tokens cannot become fewer: each is asked for the next one"),
        ({"window": 2}, "tokens that become fewer do not go with a window, which counts them: leave one out"),
        ({"num_layers": 3}, "2 reductions for 3 layers: give one for each"),
    ],
)
def test_stacks_whose_tokens_cannot_become_fewer_say_so(
    new_stack: NewStack, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        new_stack(**settings).reduce_by(build_reductions("merge", LAYERS, r=2))
    assert str(error.value) == message


def test_a_misspelt_reduction_is_met_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as error:
        build_reductions("mrege", 2)
    assert str(error.value) == "unknown reduction 'mrege': did you mean 'merge'?"


@pytest.mark.parametrize("kind", AT_WORK)
def test_half_precision_works(new_stack: NewStack, kind: str) -> None:
    stack, x, real = reduced(new_stack, kind, AT_WORK[kind]), some_tokens().float(), lengths(TIME, *COUNTS)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = stack.float().run(Tokens(x, real)).x
        stack.train().run(Tokens(x, real)).x.sum().backward()
    half = stack.eval().bfloat16().run(Tokens(x.bfloat16(), real)).x
    assert half.dtype == torch.bfloat16
    assert mixed.isfinite().all() and half.isfinite().all()
