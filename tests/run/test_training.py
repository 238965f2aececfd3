"""A whole run: what is on disk at its end, and which weights are kept."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tests.run.assembling import assembled

from clearhead.checkpoint import (
    UNDER_WAY,
    all_steps,
    best_first,
    load_model,
    model_tensors,
    named_tensors,
    read_tensors,
    restore_model,
)
from clearhead.data.batches import Cursor
from clearhead.errors import DivergedError, StorageError, UnavailableError
from clearhead.run.settings import RunConfig, read_config
from clearhead.run.training import resume, train
from clearhead.run.using import load
from clearhead.storage import SUMS, write_sums
from clearhead.training import logbook
from clearhead.training.averaging import average
from clearhead.training.estimate import seconds_per_step
from clearhead.training.events import Event, Finished, Noted, Progress, Saved, Validated
from clearhead.training.logbook import read_metrics
from clearhead.training.schedules import SCHEDULES

Configure = Callable[..., RunConfig]
pytestmark = pytest.mark.usefixtures("unchecked")


def loss_of(config: RunConfig, paths: list[Path]) -> float:
    """The validation loss of a checkpoint, or of the average of several."""
    run = assembled(config)
    restore_model(run.model, average(read_tensors(path / "model.safetensors") for path in paths), paths[0])
    return run.loop.measure()[0]


def finished_by(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


# What is on disk -----------------------------------------------------------------------------------------------------


def test_a_finished_run_has_everything_that_was_promised(tiny: Configure) -> None:
    config = tiny()
    events = list(train(config))
    run = Path(config.out)
    assert {path.name for path in run.iterdir()} == {
        "config.toml", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "SHA256SUMS",
        "data.json", "metrics.jsonl", "train.log", "samples.txt", "loss.png", "checkpoints", "model",
    }  # fmt: skip
    assert (run / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"step-4", "step-8", "last", "best"}
    assert finished_by(events).model_dir == run / "model"
    assert (run / "train.log").read_text().count("\n") == len(events)
    assert (run / "samples.txt").read_text().count("hypothesis") == 6


def test_metrics_are_the_events_one_a_line(tiny: Configure) -> None:
    config = tiny()
    events = list(train(config))
    rows = [json.loads(line) for line in (Path(config.out) / "metrics.jsonl").read_text().splitlines()]
    assert [row["event"] for row in rows] == [type(event).__name__.lower() for event in events]
    progress = [event for event in events if isinstance(event, Progress)]
    told = [row for row in rows if row["event"] == "progress"]
    assert [(row["step"], row["loss"]) for row in told] == [(event.step, event.loss) for event in progress]
    assert all(later > earlier for earlier, later in pairwise(row["step"] for row in told))


@pytest.mark.usefixtures("brief")
def test_the_stored_config_is_resolved_and_makes_the_same_run_again(tiny: Configure, tmp_path: Path) -> None:
    config = tiny()
    first = list(train(config))
    for stored in ("config.toml", "model/training_config.toml"):
        again = read_config(Path(config.out) / stored)
        assert again.model.source_vocab_size > 4
        assert again.model_dump(exclude={"model"}) == config.model_dump(exclude={"model"})
    copy = read_config(Path(config.out) / "config.toml", [f"out={str(tmp_path / 'again')!r}"])
    second = list(train(copy))
    losses = [[event.loss for event in events if isinstance(event, Progress)] for events in (first, second)]
    assert losses[0] == losses[1]


@pytest.mark.usefixtures("brief")
def test_the_checkpoint_is_on_disk_when_its_event_comes(tiny: Configure) -> None:
    for event in train(tiny()):
        if isinstance(event, Saved):
            assert (event.path / "SHA256SUMS").is_file()
            assert (event.path.parent / "last").resolve() == event.path
            assert read_metrics(event.path.parents[1] / "metrics.jsonl")[-1]["step"] == event.step


@pytest.mark.usefixtures("brief")
def test_a_run_can_be_used_while_it_goes_on(tiny: Configure) -> None:
    config = tiny()
    for event in train(config):
        if isinstance(event, Saved):
            assert isinstance(load(config.out).translate("eins"), str)


@pytest.mark.usefixtures("brief")
def test_a_wish_to_stop_leaves_a_model_and_a_run_that_goes_on(tiny: Configure) -> None:
    config = tiny()
    wishes = iter([False, True])
    finished = finished_by(list(train(config, stop=lambda: next(wishes))))
    assert (finished.step, finished.reason) == (2, "interrupted")
    load(config.out).translate("eins")
    events = list(resume(Path(config.out), []))
    assert [event.step for event in events if isinstance(event, Progress)] == list(range(3, 9))


@pytest.mark.usefixtures("brief")
def test_a_run_that_goes_on_is_used_as_it_is_by_now(tiny: Configure) -> None:
    config = tiny(train__schedule="constant")
    list(train(config))
    run = Path(config.out)
    ended, best = named_tensors(load_model(run).model), run / "checkpoints" / "best"
    events = resume(run, ["train.steps=80", "train.validate_every=2"])
    assert any(
        isinstance(event, Saved) and event.step > 8 and best.resolve().name == event.path.name for event in events
    )
    used, stored = named_tensors(load_model(run).model), read_tensors(best / "model.safetensors")
    assert all(torch.equal(used[name], stored[name]) for name in stored)
    assert any(not torch.equal(used[name], ended[name]) for name in stored)
    assert (run / UNDER_WAY).exists() and finished_by(list(events)).step == 80
    assert not (run / UNDER_WAY).exists()


@pytest.mark.usefixtures("brief")
def test_a_wish_to_stop_in_the_last_step_is_no_interruption(tiny: Configure) -> None:
    config = tiny()
    wishes = iter([False] * 7 + [True])
    finished = finished_by(list(train(config, stop=lambda: next(wishes))))
    assert (finished.step, finished.reason) == (8, "done")


@pytest.mark.usefixtures("brief")
def test_two_processes_do_not_train_in_one_directory(tiny: Configure) -> None:
    fcntl = pytest.importorskip("fcntl")
    config = tiny()
    list(train(config))
    run = Path(config.out)
    before = (run / "metrics.jsonl").read_bytes()
    with (run / UNDER_WAY).open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UnavailableError, match="is being trained by another process: wait for it, or stop it"):
            list(resume(run, ["train.steps=12"]))
    assert (run / "metrics.jsonl").read_bytes() == before
    assert finished_by(list(resume(run, ["train.steps=12"]))).step == 12


@pytest.mark.usefixtures("brief")
def test_a_run_that_starts_from_another_has_its_tokenizers_and_its_weights(tiny: Configure, tmp_path: Path) -> None:
    first = tiny("first")
    list(train(first))
    second = tiny("second", tokenizer__kind="byte", train__lr=1e-30).model_copy(update={"init": first.out})
    notes = [event.message for event in train(second) if isinstance(event, Noted)]
    before, after = load_model(Path(first.out)), load_model(Path(second.out))
    assert before.tokenizers is not None and after.tokenizers is not None
    assert after.tokenizers.fingerprint() == before.tokenizers.fingerprint()
    assert read_config(Path(second.out) / "config.toml").tokenizer.kind == "char"
    ours, theirs = model_tensors(after.model), model_tensors(before.model)
    assert f"started from {first.out}, a translator: {len(ours)} of {len(ours)} tensors taken" in notes
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor)
    shutil.rmtree(first.out)
    assert finished_by(list(resume(Path(second.out), ["train.steps=9"]))).step == 9


# Which weights are kept ----------------------------------------------------------------------------------------------

WILD: dict[str, Any] = {
    "train__steps": 12, "train__validate_every": 2, "train__keep_last": 4, "train__keep_best": 3, "train__warmup": 0,
    "train__schedule": "constant",
}  # fmt: skip


@pytest.mark.usefixtures("brief")
def test_without_averaging_the_best_checkpoint_is_kept(tiny: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEDULES, "constant", lambda step, course: 0.02 if step <= 4 else 3.0)
    config = tiny(**WILD)
    events = list(train(config))
    validated = {event.step: event.loss for event in events if isinstance(event, Validated)}
    best = min(validated, key=lambda step: validated[step])
    assert best == 4, "from then on the rate was such that it could only get worse"
    assert finished_by(events).best_step == best
    kept = model_tensors(load_model(Path(config.out)).model)
    stored = read_tensors(Path(config.out) / "checkpoints" / f"step-{best}" / "model.safetensors")
    assert all(torch.equal(kept[name], stored[name]) for name in stored)
    assert f"{validated[best]:.4f} per token" in (Path(config.out) / "model" / "README.md").read_text()


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("average_of", ["last", "best"])
@pytest.mark.parametrize("lr", [0.01, 0.3])
def test_the_weights_with_the_lowest_measured_loss_are_kept(tiny: Configure, average_of: str, lr: float) -> None:
    config = tiny(**WILD, train__lr=lr, train__average=3, train__average_of=average_of)
    events = list(train(config))
    directory = Path(config.out) / "checkpoints"
    ranked = best_first(directory)
    averaged = all_steps(directory)[-3:] if average_of == "last" else ranked[:3]
    losses = {
        "the best checkpoint": loss_of(config, ranked[:1]),
        f"the average of the {average_of} 3": loss_of(config, averaged),
    }
    winner = min(losses, key=lambda name: losses[name])
    said = "; ".join(f"{name}: loss {loss:.4f}" for name, loss in losses.items())
    notes = [event.message for event in events if isinstance(event, Noted)]
    assert notes[-1] == f"{said}; kept {winner}"
    run = assembled(config)
    restore_model(run.model, model_tensors(load_model(Path(config.out)).model), Path(config.out))
    assert run.loop.measure()[0] == min(losses.values())


@pytest.mark.usefixtures("brief")
def test_an_average_that_is_better_than_its_parts_is_kept(tiny: Configure) -> None:
    """Two checkpoints that are each as wrong as the other, in opposite directions."""
    config = tiny(train__average=2, train__keep_last=2)
    for event in train(config):
        if isinstance(event, Saved) and event.step == 8:
            middle = read_tensors(event.path / "model.safetensors")
            noise = {name: torch.randn_like(tensor) for name, tensor in middle.items()}
            for path, sign in zip(all_steps(event.path.parent), (1, -1), strict=True):
                save_file({n: t + sign * noise[n] for n, t in middle.items()}, path / "model.safetensors")
                write_sums(path, [part for part in path.iterdir() if part.name != SUMS])
        if isinstance(event, Noted):
            last = event.message
    assert last.endswith("; kept the average of the last 2")
    for name, tensor in model_tensors(load_model(Path(config.out)).model).items():
        torch.testing.assert_close(tensor, middle[name])


@pytest.mark.usefixtures("brief")
def test_an_average_that_is_worse_than_the_best_is_not_kept(tiny: Configure) -> None:
    """While the loss still falls at every step, older weights can only make it worse."""
    config = tiny(**WILD, train__lr=0.01, train__average=3)
    notes = [event.message for event in train(config) if isinstance(event, Noted)]
    assert notes[-1].endswith("; kept the best checkpoint")


@pytest.mark.usefixtures("brief")
def test_weights_whose_loss_is_not_a_number_are_not_kept(tiny: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEDULES, "constant", lambda step, course: 0.02 if step <= 4 else 1.0)
    config = tiny(**WILD, train__average=2)
    for event in train(config):
        if isinstance(event, Saved) and event.step == 12:
            best = best_first(event.path.parent)[0]
            assert best.name == "step-4", "it is none of those that are averaged"
            broken = {n: torch.full_like(t, torch.nan) for n, t in read_tensors(best / "model.safetensors").items()}
            save_file(broken, best / "model.safetensors")
            write_sums(best, [part for part in best.iterdir() if part.name != SUMS])
        if isinstance(event, Noted):
            last = event.message
    assert last.startswith("the best checkpoint: loss nan; ") and last.endswith("; kept the average of the last 2")
    assert all(tensor.isfinite().all() for tensor in model_tensors(load_model(Path(config.out)).model).values())


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("average_of", ["last", "best"])
def test_a_run_stopped_before_it_was_ever_validated_keeps_its_last_weights(tiny: Configure, average_of: str) -> None:
    config = tiny(**WILD, train__average=3, train__average_of=average_of)
    assert finished_by(list(train(config, stop=lambda: True))).step == 1
    kept = model_tensors(load_model(Path(config.out)).model)
    stored = read_tensors(Path(config.out) / "checkpoints" / "step-1" / "model.safetensors")
    assert all(torch.equal(kept[name], stored[name]) for name in stored)


@pytest.mark.usefixtures("brief")
def test_a_best_checkpoint_that_is_damaged_at_the_end_gives_way_to_the_next(tiny: Configure) -> None:
    config = tiny(**WILD, train__lr=0.01)
    for event in train(config):
        if isinstance(event, Saved) and event.step == 12:
            ranked = best_first(event.path.parent)
            weights = ranked[0] / "model.safetensors"
            data = bytearray(weights.read_bytes())
            data[-1] ^= 64
            weights.write_bytes(data)
    kept = model_tensors(load_model(Path(config.out)).model)
    stored = read_tensors(ranked[1] / "model.safetensors")
    assert all(torch.equal(kept[name], stored[name]) for name in stored)


# What goes wrong -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["metrics.jsonl", "samples.txt", "train.log"])
def test_a_disk_that_is_full_for_the_log_is_an_error_of_one_line(
    tiny: Configure, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    append = logbook._append
    config = tiny()

    def full(path: Path, line: str) -> None:
        if path.name == name and (Path(config.out) / "checkpoints").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        append(path, line)

    monkeypatch.setattr(logbook, "_append", full)
    with pytest.raises(StorageError) as error:
        list(train(config))
    assert str(error.value) == (
        f"the disk is full: {config.out} was not written; free some space and try again (training: with --resume)"
    )
    monkeypatch.undo()
    monkeypatch.setattr(logbook, "draw_curve", lambda metrics, picture: None)
    assert finished_by(list(resume(Path(config.out), []))).step == 8


@pytest.mark.usefixtures("brief")
def test_a_run_that_diverged_goes_on_from_its_last_good_step(tiny: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(train__save_every=1, train__clip=0.0)
    with monkeypatch.context() as patch:
        patch.setitem(SCHEDULES, "inverse_sqrt", lambda step, course: 0.001 if step < 5 else 1e30)
        with pytest.raises(DivergedError, match=r"^step 6: .*the weights were not touched: lower train\.lr"):
            list(train(config))
    shutil.rmtree(Path(config.out) / "checkpoints" / "step-5")
    events = list(resume(Path(config.out), ["train.lr=0.001"]))
    assert [event.step for event in events if isinstance(event, Progress)] == [5, 6, 7, 8]
    assert finished_by(events).reason == "done"


# The estimate --------------------------------------------------------------------------------------------------------


def test_an_estimate_changes_nothing(tiny: Configure) -> None:
    run = assembled(tiny(model__norm="batch"))
    weights = {name: tensor.clone() for name, tensor in model_tensors(run.model).items()}
    random_state, memories = torch.get_rng_state(), len(run.loop.optimizer.state)
    assert seconds_per_step(run.loop) > 0
    assert torch.equal(torch.get_rng_state(), random_state)
    assert len(run.loop.optimizer.state) == memories == 0
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model_tensors(run.model).items())
    first = next(run.loop.shares()).cursor
    assert first == Cursor(0, 1)
