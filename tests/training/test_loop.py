"""The loop: what it yields, what it divides by, what stops it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.run.assembling import assembled

from clearhead import tiles
from clearhead.checkpoint import model_tensors
from clearhead.data.batches import BatchConfig, Batches
from clearhead.errors import DivergedError
from clearhead.run.assembling import Assembled
from clearhead.run.settings import RunConfig
from clearhead.run.training import train
from clearhead.training.estimate import seconds_per_step
from clearhead.training.events import Finished, Progress, Saved, Started, Validated
from clearhead.training.loop import TrainingState
from clearhead.training.optimizers import OPTIMIZERS
from clearhead.training.precision import PRECISIONS, is_slow

Configure = Callable[..., RunConfig]


def test_a_run_tells_its_story_in_order(tiny: Configure) -> None:
    events = [event for event in train(tiny()) if isinstance(event, Started | Progress | Validated | Saved | Finished)]
    kinds = [kind for kind, _ in itertools.groupby(type(event) for event in events)]
    assert kinds == [Started, Progress, Validated, Saved, Progress, Validated, Saved, Finished]
    validated = next(event for event in events if isinstance(event, Validated))
    assert len(validated.samples) == 3
    assert isinstance(events[-1], Finished)
    assert events[-1].reason == "done"


@pytest.mark.usefixtures("unchecked")
def test_the_same_seed_repeats_a_run_bit_for_bit_and_another_does_not(tiny: Configure) -> None:
    def losses(out: str, seed: int) -> list[float]:
        return [e.loss for e in train(tiny(out, train__seed=seed)) if isinstance(e, Progress)]

    assert losses("a", 1) == losses("b", 1)
    assert losses("c", 2) != losses("d", 1)


def test_accumulated_gradients_are_those_of_one_large_batch(tiny: Configure) -> None:
    """Batches of unequal size: a mean of means would weigh the tokens of the small one more."""
    changes: dict[str, Any] = {"model__dropout": 0.0, "train__clip": 0.0}
    run = assembled(tiny(train__accumulate=3, **changes))
    batches = [part.batch for part in next(run.loop.shares()).parts]
    assert len({batch.num_answers for batch in batches}) > 1
    run.loop.step(run.loop.shares(), 1, 8)
    accumulated = {name: p.grad.clone() for name, p in run.model.named_parameters() if p.grad is not None}

    fresh = assembled(tiny("other", train__accumulate=3, **changes))
    sums = [fresh.loop.objective(fresh.model, batch, fresh.loop.loss) for batch in batches]
    (sum(s.total for s in sums) / sum(s.tokens for s in sums)).backward()
    for name, parameter in fresh.model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(accumulated[name], parameter.grad, rtol=1e-4, atol=1e-6)


def test_the_loss_is_normalised_by_real_target_tokens(tiny: Configure) -> None:
    run = assembled(tiny(model__dropout=0.0))
    batch = next(run.loop.shares()).parts[0].batch
    sums = run.loop.objective(run.model, batch, run.loop.loss)
    assert sums.tokens == batch.num_answers == int((batch.target[:, 1:] != 2).sum())


def test_every_parameter_gets_a_gradient(tiny: Configure) -> None:
    run = assembled(tiny())
    run.loop.step(run.loop.shares(), 1, 8)
    assert [name for name, p in run.model.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_one_batch_can_be_overfitted(tiny: Configure, optimizer: str) -> None:
    run = assembled(
        tiny(model__dropout=0.0, model__dim=32, train__smoothing=0.0, train__optimizer=optimizer,
             train__schedule="constant", train__warmup=0)
    )  # fmt: skip
    first = next(run.loop.shares())
    result = [run.loop.step(itertools.repeat(first), step, 100) for step in range(1, 101)][-1]
    assert result.loss / result.tokens < 0.1


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_precision_learns(tiny: Configure, precision: str) -> None:
    losses = [e.loss for e in train(tiny(train__precision=precision, train__steps=20)) if isinstance(e, Progress)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("native", [True, False])
def test_auto_is_bf16_where_the_machine_has_it(tiny: Configure, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.training.precision.is_slow", lambda precision, device: not native)
    lesson = assembled(tiny(train__precision="auto")).loop.sharing.lesson
    assert lesson.precision == ("bf16" if native else "fp32")


@pytest.mark.parametrize(
    ("has", "slow"),
    [({"avx512_f": True}, True), ({"avx512_bf16": True}, False), ({"amx_bf16": True}, False), ({"bf16": True}, False)],
)
def test_a_cpu_that_emulates_bf16_is_slow_at_it(
    has: dict[str, bool], slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has)
    monkeypatch.delenv(tiles.VARIABLE, raising=False)
    assert is_slow("bf16", torch.device("cpu")) is slow
    assert not is_slow("fp32", torch.device("cpu"))


def test_gradients_are_clipped_to_the_length_that_was_asked_for(tiny: Configure) -> None:
    run = assembled(tiny(train__clip=0.01))
    result = run.loop.step(run.loop.shares(), 1, 8)
    clipped = torch.stack([p.grad.norm() for p in run.model.parameters() if p.grad is not None]).norm()
    assert result.grad_norm > 0.01
    assert float(clipped) == pytest.approx(0.01, rel=1e-3)


def test_a_loss_that_is_not_finite_stops_before_the_weights_change(tiny: Configure) -> None:
    run = assembled(tiny())
    with torch.no_grad():
        run.model.decoder.blocks[0].feedforward.outer.bias[0] = float("nan")
    before = model_tensors(run.model)
    before = {name: tensor.clone() for name, tensor in before.items()}
    with pytest.raises(DivergedError, match=r"step 1: the loss is nan .*weights were not touched"):
        run.loop.step(run.loop.shares(), 1, 8)
    for name, tensor in model_tensors(run.model).items():
        assert torch.equal(tensor.nan_to_num(7), before[name].nan_to_num(7))


def test_a_gradient_that_is_not_finite_names_its_parameter(tiny: Configure) -> None:
    run = assembled(tiny())
    run.model.encoder.blocks[0].attention.value.weight.register_hook(lambda grad: grad * float("inf"))
    with pytest.raises(DivergedError, match=r"gradient of encoder\.blocks\.0\.attention\.value\.weight is not finite"):
        run.loop.step(run.loop.shares(), 1, 8)


def test_a_gradient_too_large_to_be_measured_is_told_as_such(tiny: Configure) -> None:
    """Each of its numbers is finite, and the sum of their squares is not."""
    run = assembled(tiny())
    run.model.encoder.blocks[0].attention.value.weight.register_hook(lambda grad: torch.full_like(grad, 1e20))
    with pytest.raises(DivergedError, match=r"step 1: the gradient is too large to be measured .*lower train\.lr"):
        run.loop.step(run.loop.shares(), 1, 8)


def broken(run: Assembled) -> Assembled:
    with torch.no_grad():
        run.model.decoder.blocks[0].feedforward.outer.bias[0] = float("nan")
    return run


def test_what_diverged_is_found_in_the_users_data(tiny: Configure) -> None:
    run = broken(assembled(tiny()))
    pairs = run.prepared.training.subset(np.arange(10, 40))
    run.loop.batches = Batches(pairs, BatchConfig(batch_size=30), seed=1)
    rows = next(run.loop.shares()).examples
    named = ", ".join(f"pair {pairs.line_numbers[row]}" for row in rows)
    with pytest.raises(DivergedError) as error:
        run.loop.step(run.loop.shares(), 1, 8)
    assert f"the loss is nan ({named}, … of the data); " in str(error.value)
    assert min(pairs.line_numbers) == 11


def test_only_a_run_that_has_begun_can_be_resumed(tiny: Configure) -> None:
    run = broken(assembled(tiny()))
    with pytest.raises(DivergedError, match=r"train\.precision = 'fp32', then go on with --resume$"):
        list(run.loop.run(TrainingState()))
    with pytest.raises(DivergedError, match=r"train\.precision = 'fp32'$"):
        seconds_per_step(run.loop)


def test_the_last_step_of_an_epoch_belongs_to_it(tiny: Configure) -> None:
    run = assembled(tiny(train__steps=1000, train__epochs=1.0, train__validate_every=1000))
    epochs = [event.epoch for event in run.loop.run(TrainingState()) if isinstance(event, Progress)]
    assert epochs == [1] * run.loop.batches.num_batches(0)


@pytest.mark.usefixtures("unchecked")
def test_early_stopping_waits_as_long_as_its_patience(tiny: Configure) -> None:
    config = tiny(train__steps=40, train__validate_every=2, train__patience=2, train__lr=1e-30)
    events = list(train(config))
    assert isinstance(events[-1], Finished)
    assert events[-1].reason == "early stop"
    # The rate is so small that nothing improves: the first validation is the best, two more end the run.
    assert events[-1].step <= 8


def test_a_wish_to_stop_is_granted_after_the_step_and_saves(tiny: Configure) -> None:
    wishes = iter([False, False, True])
    run = assembled(tiny())
    run.loop.stop = lambda: next(wishes)
    events = list(run.loop.run(TrainingState()))
    assert [type(event) for event in events[-2:]] == [Saved, Finished]
    assert isinstance(events[-1], Finished)
    assert (events[-1].step, events[-1].reason) == (3, "interrupted")


@pytest.mark.usefixtures("unchecked")
def test_validation_does_not_change_what_training_does(tiny: Configure) -> None:
    def losses(out: str, every: int) -> list[float]:
        return [e.loss for e in train(tiny(out, train__validate_every=every)) if isinstance(e, Progress)]

    assert losses("a", 1) == losses("b", 8)


def test_agreement_reads_a_batch_twice_while_training_and_once_while_measuring(tiny: Configure) -> None:
    plain, twice = (assembled(tiny(model__dropout=0.3, train__agreement=weight)) for weight in (0.0, 4.0))
    batch = next(plain.loop.shares()).parts[0].batch
    measured = [run.loop.objective(run.model.eval(), batch, run.loop.loss) for run in (plain, twice)]
    torch.testing.assert_close(*(sums.total for sums in measured))
    rows: list[int] = []
    twice.model.source_embedding.register_forward_hook(lambda module, given, found: rows.append(len(found)))
    sums = twice.loop.objective(twice.model.train(), batch, twice.loop.loss)
    assert rows == [2 * len(batch.source)]
    assert sums.tokens == batch.num_answers
