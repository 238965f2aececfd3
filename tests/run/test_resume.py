"""Resumed equals uninterrupted, bit for bit: weights, losses, optimizer, counters."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.checkpoint import UNDER_WAY, all_steps, load_model, read_tensors
from clearhead.errors import (
    ConfigError,
    DataError,
    MissingInputError,
    StorageError,
    UnavailableError,
    WouldOverwriteError,
)
from clearhead.run.settings import RunConfig, resolve
from clearhead.run.training import resume, train
from clearhead.storage import DRAFT, SUMS
from clearhead.training.events import Event, Finished, Noted, Progress, Started, Validated
from clearhead.training.logbook import read_metrics
from clearhead.training.optimizers import OPTIMIZERS
from clearhead.training.schedules import SCHEDULES

Configure = Callable[..., RunConfig]
pytestmark = pytest.mark.usefixtures("unchecked", "brief")

STEPS = 40
SAVE_ALL: dict[str, Any] = {"train__save_every": 1, "train__keep_last": 100}
SAVE_LATE = ["train.save_every=1000"]
"""For the resumed run: where it was cut is all that counts, and saving takes most of the time."""


def losses(events: list[Event]) -> dict[int, float]:
    return {event.step: event.loss for event in events if isinstance(event, Progress)}


def until(events: Iterator[Event], step: int) -> None:
    """Follow a run until a step has been taken, and drop it there, as a kill would."""
    for event in events:
        if isinstance(event, Progress) and event.step == step:
            return


def cut(run: Path, step: int, to: Path) -> Path:
    """A copy of a run as it was when its checkpoint of this step had just been written."""
    shutil.copytree(run, to, ignore=shutil.ignore_patterns("step-*", "model", "last", "best"))
    shutil.copytree(run / "checkpoints" / f"step-{step}", to / "checkpoints" / f"step-{step}")
    return to


def final_tensors(run: Path, step: int) -> dict[str, Tensor]:
    """Weights, optimizer and random state of a checkpoint."""
    path = run / "checkpoints" / f"step-{step}"
    weights, memories = (read_tensors(path / f"{name}.safetensors") for name in ("model", "optimizer"))
    return {**weights, **{f"optimizer {name}": tensor for name, tensor in memories.items()}}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def state_of(run: Path, step: int) -> dict[str, Any]:
    state = json.loads((run / "checkpoints" / f"step-{step}" / "state.json").read_text())
    return {key: value for key, value in state.items() if key != "seconds"}


# Cut at any step -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("accumulate", "cuts"), [
    (1, range(1, STEPS, 9)), (2, range(3, STEPS, 18)), pytest.param(1, range(1, STEPS), marks=pytest.mark.slow),
], ids=["1", "2", "every"])  # fmt: skip
def test_a_run_cut_at_any_step_equals_the_uninterrupted_one_bit_for_bit(
    tiny: Configure, tmp_path: Path, accumulate: int, cuts: range
) -> None:
    config = tiny(
        train__steps=STEPS, train__validate_every=STEPS, train__accumulate=accumulate, train__optimizer="adamw",
        train__weight_decay=0.01, model__attention_dropout=0.1, **SAVE_ALL,
    )  # fmt: skip
    events = list(train(config))
    expected, reached = losses(events), final_tensors(Path(config.out), STEPS)
    epochs = {event.epoch for event in events if isinstance(event, Progress)}
    assert len(expected) == STEPS
    assert len(epochs) > 2, "the cuts fall into several passes over the data"
    for step in cuts:
        copy = cut(Path(config.out), step, tmp_path / f"cut-{step}")
        resumed = list(resume(copy, SAVE_LATE))
        assert losses(resumed) == {later: expected[later] for later in range(step + 1, STEPS + 1)}
        assert_same(final_tensors(copy, STEPS), reached)
        assert state_of(copy, STEPS) == state_of(Path(config.out), STEPS)


@pytest.mark.parametrize("changes", [
    *({"train__schedule": schedule, "train__optimizer": optimizer}
      for schedule, optimizer in zip(SCHEDULES, itertools.cycle(OPTIMIZERS), strict=False)),
    {"model__norm": "batch", "model__positions": "learned", "model__residual": "post"},
    {"train__precision": "bf16"},
    {"train__loss": "kl", "train__clip": 0.1},
    {"tokenizer__joint": False, "model__tie": "none"},
    {"batches__batch_size": 7, "train__epochs": 1.0},
], ids=lambda changes: "-".join(map(str, changes.values())))  # fmt: skip
def test_every_way_to_train_can_be_resumed(tiny: Configure, tmp_path: Path, changes: dict[str, Any]) -> None:
    config = tiny(train__validate_every=100, **SAVE_ALL, **changes)
    expected = losses(list(train(config)))
    last = max(expected)
    for step in (1, 5):
        copy = cut(Path(config.out), step, tmp_path / f"cut-{step}")
        assert losses(list(resume(copy, SAVE_LATE))) == {later: expected[later] for later in range(step + 1, last + 1)}
        assert_same(final_tensors(copy, last), final_tensors(Path(config.out), last))


def test_an_interruption_leaves_no_trace_in_what_is_averaged(tiny: Configure) -> None:
    plan = {"train__steps": 12, "train__validate_every": 3, "train__keep_last": 3, "train__average": 3}
    whole, stopped = tiny("whole", **plan), tiny("stopped", **plan)
    expected = [event.message for event in train(whole) if isinstance(event, Noted) and "average" in event.message]
    steps = itertools.count(1)
    list(train(stopped, stop=lambda: next(steps) == 7))
    list(resume(Path(stopped.out), [], stop=lambda: True))
    assert all_steps(Path(stopped.out) / "checkpoints")[-1].name == "step-8"
    found = [event.message for event in resume(Path(stopped.out), []) if isinstance(event, Noted)]
    assert expected[-1].startswith("the best checkpoint")
    assert [message for message in found if "average" in message] == expected
    assert [path.name for path in all_steps(Path(stopped.out) / "checkpoints")] == [
        path.name for path in all_steps(Path(whole.out) / "checkpoints")
    ]


def test_a_run_that_is_dropped_between_checkpoints_goes_on_from_the_last_one(tiny: Configure, tmp_path: Path) -> None:
    whole, dropped = tiny("whole"), tiny("dropped", train__save_every=2)
    expected = losses(list(train(whole)))
    until(train(dropped), 7)
    run = Path(dropped.out)
    assert [path.name for path in all_steps(run / "checkpoints")] == ["step-2", "step-4", "step-6"]
    events = list(resume(run, []))
    started = next(event for event in events if isinstance(event, Started))
    assert started.step == 6
    assert losses(events) == {7: expected[7], 8: expected[8]}
    rows = [row["step"] for row in read_metrics(run / "metrics.jsonl") if row["event"] == "progress"]
    assert rows == list(range(1, 9)), "step 7 was taken twice and is told once"
    ours, theirs = load_model(run).model, load_model(Path(whole.out)).model
    assert_same(dict(ours.state_dict()), dict(theirs.state_dict()))


@pytest.mark.parametrize("times", [3])
def test_a_run_may_be_resumed_again_and_again(tiny: Configure, times: int) -> None:
    whole, patched = tiny("whole"), tiny("patched", train__save_every=1)
    expected = losses(list(train(whole)))
    run = Path(patched.out)
    until(train(patched), 2)
    for round_ in range(times):
        until(resume(run, []), 4 + round_)
    assert losses(list(resume(run, []))) == {step: expected[step] for step in range(6, 9)}
    rows = read_metrics(run / "metrics.jsonl")
    assert [row["step"] for row in rows if row["event"] == "progress"] == list(range(1, 9))
    assert [row["loss"] for row in rows if row["event"] == "progress"] == list(expected.values())


def test_a_metrics_line_that_was_cut_off_is_struck_out(tiny: Configure) -> None:
    config = tiny(train__save_every=1)
    run = Path(config.out)
    until(train(config), 5)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"event": "progress", "step": 6, "lo')
    list(resume(run, []))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["event"] == "progress"] == list(range(1, 9))


# Counters ------------------------------------------------------------------------------------------------------------

PATIENT: dict[str, Any] = {
    "train__steps": 12, "train__validate_every": 1, "train__patience": 3, "train__schedule": "constant",
    "train__keep_last": 100,
}  # fmt: skip


@pytest.fixture
def ruinous(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the fifth step on the rate is such that the loss can only get worse."""
    monkeypatch.setitem(SCHEDULES, "constant", lambda step, course: 0.02 if step <= 4 else 3.0)


@pytest.mark.usefixtures("ruinous")
def test_early_stopping_and_the_best_loss_are_carried_on(tiny: Configure, tmp_path: Path) -> None:
    config = tiny(**PATIENT)
    events = list(train(config))
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.step, finished.best_step) == ("early stop", 7, 4)
    validated = {event.step: (event.loss, event.is_best) for event in events if isinstance(event, Validated)}
    for step in range(1, finished.step + 1):
        resumed = list(resume(cut(Path(config.out), step, tmp_path / f"cut-{step}"), []))
        end = resumed[-1]
        assert isinstance(end, Finished)
        assert (end.step, end.reason) == (finished.step, "early stop")
        assert (end.best_step, end.best_loss) == (finished.best_step, finished.best_loss)
        later = {event.step: (event.loss, event.is_best) for event in resumed if isinstance(event, Validated)}
        assert later == {at: validated[at] for at in validated if at > step}


@pytest.mark.usefixtures("ruinous")
def test_more_patience_lets_a_stopped_run_go_on(tiny: Configure) -> None:
    config = tiny(**PATIENT)
    stopped = list(train(config))[-1]
    events = list(resume(Path(config.out), ["train.patience=100"]))
    assert isinstance(stopped, Finished)
    assert min(losses(events)) == stopped.step + 1
    assert isinstance(events[-1], Finished)
    assert (events[-1].step, events[-1].reason) == (12, "done")


# Finished runs -------------------------------------------------------------------------------------------------------


def test_resuming_a_finished_run_changes_nothing(tiny: Configure) -> None:
    config = tiny()
    first = list(train(config))[-1]
    run = Path(config.out)
    before = {path.name: path.read_bytes() for path in (run / "model").iterdir() if path.name != "README.md"}
    checkpoints = {path: path.stat().st_mtime_ns for path in (run / "checkpoints").rglob("*")}
    events = list(resume(run, []))
    assert losses(events) == {}
    assert isinstance(first, Finished)
    assert isinstance(events[-1], Finished)
    assert (events[-1].step, events[-1].reason, events[-1].best_loss) == (8, "done", first.best_loss)
    after = {path.name: path.read_bytes() for path in (run / "model").iterdir() if path.name != "README.md"}
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed <= {SUMS}
    assert {path: path.stat().st_mtime_ns for path in (run / "checkpoints").rglob("*")}.keys() == checkpoints.keys()
    rows = [row["step"] for row in read_metrics(run / "metrics.jsonl") if row["event"] == "progress"]
    assert rows == list(range(1, 9))


def test_a_finished_run_can_be_made_longer_and_remembers_it(tiny: Configure) -> None:
    """What was changed on the command line holds after the next interruption too."""
    constant = {"train__schedule": "constant"}
    short, long = tiny("short", **constant), tiny("long", train__steps=12, **constant)
    expected = losses(list(train(long)))
    list(train(short))
    run = Path(short.out)
    until(resume(run, ["train.steps=12", "train.save_every=1"]), 10)
    assert losses(list(resume(run, []))) == {step: expected[step] for step in (10, 11, 12)}


# Damage --------------------------------------------------------------------------------------------------------------


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", SUMS])
def test_a_damaged_last_checkpoint_costs_only_the_steps_since_the_one_before(tiny: Configure, name: str) -> None:
    config = tiny(train__save_every=1)
    expected = losses(list(train(config)))
    run = Path(config.out)
    damage(run / "checkpoints" / "step-8" / name)
    events = list(resume(run, []))
    notes = [event.message for event in events if isinstance(event, Noted)]
    assert any("step-8" in note and note.endswith("going back to the checkpoint before it") for note in notes)
    assert losses(events) == {8: expected[8]}
    rows = [row["step"] for row in read_metrics(run / "metrics.jsonl") if row["event"] == "progress"]
    assert rows == list(range(1, 9))


def test_damage_to_every_checkpoint_is_an_error_that_says_so(tiny: Configure) -> None:
    config = tiny()
    list(train(config))
    for path in all_steps(Path(config.out) / "checkpoints"):
        damage(path / "model.safetensors")
    with pytest.raises(StorageError, match=r"no checkpoint in .*checkpoints is whole: .*step-8/model\.safetensors"):
        list(resume(Path(config.out), []))


def test_a_damaged_tokenizer_is_noticed_before_anything_is_trained(tiny: Configure) -> None:
    config = tiny()
    list(train(config))
    damage(Path(config.out) / "tokenizer.json")
    with pytest.raises(StorageError, match=r"tokenizer\.json is damaged"):
        list(resume(Path(config.out), []))


# What lasts and what may change --------------------------------------------------------------------------------------

LASTING = {
    "model.dim=16": ("with model.dim = 8", "with model.dim = 16"),
    "model.num_heads=4": ("with model.num_heads = 2", "with model.num_heads = 4"),
    "model.positions=rotary": ('with model.positions = "sinusoidal"', 'with model.positions = "rotary"'),
    "model.residual=post": ('with model.residual = "pre"', 'with model.residual = "post"'),
    "model.window=3": ("without model.window", "with model.window = 3"),
    "model.reduce.threshold=0.5": ("without model.reduce.threshold", "with model.reduce.threshold = 0.5"),
    "init=runs/other": ("without init", 'with init = "runs/other"'),
    "tokenizer.kind=word": ('with tokenizer.kind = "char"', 'with tokenizer.kind = "word"'),
    "train.optimizer=muon": ('with train.optimizer = "adamw"', 'with train.optimizer = "muon"'),
    "train.accumulate=2": ("with train.accumulate = 1", "with train.accumulate = 2"),
    "train.seed=2": ("with train.seed = 1", "with train.seed = 2"),
    "train.loss=kl": ('with train.loss = "cross_entropy"', 'with train.loss = "kl"'),
    "train.smoothing=0.3": ("with train.smoothing = 0.1", "with train.smoothing = 0.3"),
    "batches.max_tokens=200": ("with batches.max_tokens = 300", "with batches.max_tokens = 200"),
    "batches.batch_size=7": ("without batches.batch_size", "with batches.batch_size = 7"),
    "data.train_size=50": ("with data.train_size = 60", "with data.train_size = 50"),
}


def test_what_would_make_another_run_of_it_is_refused_and_leaves_it_as_it_was(tiny: Configure) -> None:
    config = tiny(train__optimizer="adamw")
    list(train(config))
    run = Path(config.out)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for assignment, (old, new) in LASTING.items():
        with pytest.raises(ConfigError) as error:
            resume(run, [assignment])
        assert str(error.value) == (
            f"{run} began {old} and cannot go on {new}: leave that as it was, or start a new run, "
            f'with init = "{run}" if its weights are wanted'
        )
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert losses(list(resume(run, []))) == {}


def test_what_only_training_knows_may_change_again_and_again(tiny: Configure) -> None:
    config = tiny()
    list(train(config))
    run = Path(config.out)
    changes = [
        "model.dropout=0.1", "model.attention_dropout=0.2", "model.kernel=exact", "model.reduce.weight=0.5",
        "model.reduce.temperature=0.5", "data.workers=1", "train.lr=0.001",
        "train.weight_decay=0.1", "train.epochs=100.0", "train.validate_every=2", "train.keep_best=2",
    ]  # fmt: skip
    assert losses(list(resume(run, [*changes, "train.steps=9"]))).keys() == {9}
    assert losses(list(resume(run, ["model.dropout=0.0", "train.steps=10"]))).keys() == {10}


def test_before_its_first_checkpoint_anything_may_change(tiny: Configure) -> None:
    config = tiny(train__validate_every=8)
    until(train(config), 2)
    assert losses(list(resume(Path(config.out), ["model.num_heads=4", "train.seed=2"]))).keys() == set(range(1, 9))
    assert load_model(Path(config.out)).model.config.model_dump()["num_heads"] == 4


def test_neither_the_environment_nor_an_edited_config_changes_what_the_weights_compute(
    tiny: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny()
    list(train(config))
    run = Path(config.out)
    with monkeypatch.context() as patched:
        patched.setenv("CLEARHEAD_TRAIN__SEED", "2")
        with pytest.raises(ConfigError, match=r"began with train\.seed = 1 and cannot go on with train\.seed = 2"):
            resume(run, [])
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace("num_heads = 2", "num_heads = 4"))
    with pytest.raises(ConfigError, match=r"began with model\.num_heads = 2 and cannot go on with .* = 4"):
        resume(run, [])


def test_a_data_file_may_have_moved_and_may_not_be_another(tiny: Configure, tmp_path: Path) -> None:
    pairs, other = tmp_path / "pairs.tsv", tmp_path / "other.tsv"
    pairs.write_text("".join(f"satz {number}\tsentence {number}\n" for number in range(60)))
    config = tiny(data__kind="tsv", data__tsv=str(pairs))
    list(train(config))
    run = Path(config.out)
    shutil.copy(pairs, other)
    for change in (f"data.tsv={other}", f"data.validation_tsv={other}", "data.hold_out=9"):
        with pytest.raises(ConfigError, match=r" began with.* and cannot go on with data\."):
            resume(run, [change])
    (tmp_path / "folder").mkdir()
    assert losses(list(resume(run, [f"data.tsv={tmp_path}/folder/../pairs.tsv", "train.steps=9"]))).keys() == {9}
    pairs.unlink()
    assert losses(list(resume(run, [f"data.tsv={other}", "train.steps=10"]))).keys() == {10}


def test_labels_that_are_others_by_now_are_noticed(tmp_path: Path) -> None:
    texts = tmp_path / "texts.tsv"
    rows = "".join(f"text {number}\t{'bad' if number % 2 else 'good'}\n" for number in range(40))
    texts.write_text(f"text\tlabel\n{rows}")
    tree: dict[str, Any] = {
        "out": str(tmp_path / "run"), "data": {"train": str(texts)}, "tokenizer": {"kind": "char"},
        "model": {"kind": "classifier", "dim": 8, "ff_dim": 8, "num_heads": 2, "num_layers": 1, "max_len": 20},
        "train": {"steps": 1},
    }  # fmt: skip
    list(train(resolve(tree)))
    texts.write_text(f"text\tlabel\n{rows.replace('bad', 'poor')}")
    with pytest.raises(ConfigError, match=r'began with model\.labels\.0 = "bad" and cannot go on with .* = "good"'):
        list(resume(tmp_path / "run", []))


# Where to start ------------------------------------------------------------------------------------------------------


def test_a_directory_without_a_config_cannot_be_resumed(tmp_path: Path) -> None:
    for run in (tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(MissingInputError) as error:
            resume(run, [])
        assert error.value.exit_code == 66
        assert str(error.value) == f"{run} is not a run directory: it has no config.toml to go on from"
        (tmp_path / "nowhere").mkdir(exist_ok=True)


@pytest.mark.parametrize("missing", ["checkpoints", "tokenizer.json", "config.json", SUMS])
def test_a_run_killed_before_its_first_checkpoint_starts_again(tiny: Configure, missing: str) -> None:
    whole, killed = tiny("whole"), tiny("killed")
    expected = losses(list(train(whole)))
    until(train(killed), 2)
    run = Path(killed.out)
    shutil.rmtree(run / missing, ignore_errors=True) if missing == "checkpoints" else (run / missing).unlink()
    events = list(resume(run, []))
    assert losses(events) == expected
    assert_same(final_tensors(run, 8), final_tensors(Path(whole.out), 8))


def test_a_run_that_failed_before_its_config_was_written_can_be_started_again(tiny: Configure) -> None:
    with pytest.raises(ConfigError, match="dim 8 cannot be cut into 3 heads"):
        list(train(tiny(model__num_heads=3)))
    config = tiny()
    assert {path.name for path in Path(config.out).iterdir()} == {"metrics.jsonl", "train.log"}
    (Path(config.out) / f"config.toml{DRAFT}1").touch()
    assert isinstance(list(train(config))[-1], Finished)


@pytest.mark.parametrize("name", ["config.toml", "notes.txt", "checkpoints", "model"])
def test_a_directory_with_anything_in_it_is_not_trained_into(tiny: Configure, name: str) -> None:
    config = tiny()
    run = Path(config.out)
    run.mkdir()
    (run / name).write_text("precious")
    with pytest.raises(WouldOverwriteError) as error:
        train(config)
    assert error.value.exit_code == 73
    assert str(error.value) == f"{run} is not empty: go on with --resume, or choose another --out"
    assert (run / name).read_text() == "precious"


def test_a_file_in_the_place_of_the_run_is_not_overwritten(tiny: Configure) -> None:
    config = tiny()
    Path(config.out).write_text("precious")
    with pytest.raises(WouldOverwriteError):
        train(config)
    assert Path(config.out).read_text() == "precious"


def test_an_empty_directory_is_trained_into(tiny: Configure) -> None:
    config = tiny(train__steps=1)
    Path(config.out).mkdir()
    assert isinstance(list(train(config))[-1], Finished)


@pytest.mark.parametrize("name", ["2024", "1e3", "true", "with 'quotes' and \"more\"", "[x]"])
def test_a_run_directory_may_have_any_name(tiny: Configure, name: str) -> None:
    config = tiny(name, train__steps=2, train__save_every=1)
    until(train(config), 2)
    assert losses(list(resume(Path(name), []))).keys() == {2}


def test_a_device_that_is_not_there_is_refused_before_anything_is_read(tiny: Configure) -> None:
    config = tiny()
    with pytest.raises(UnavailableError):
        train(config, device="cuda")
    assert not Path(config.out).exists()
    list(train(config))
    with pytest.raises(UnavailableError):
        resume(Path(config.out), [], device="cuda")


def test_data_that_has_shrunk_is_noticed(tiny: Configure, tmp_path: Path) -> None:
    pairs = [(f"satz {number}", f"sentence {number}") for number in range(60)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    config = tiny(data__kind="tsv", data__tsv=str(tmp_path / "pairs.tsv"), train__save_every=1, batches__max_tokens=60)
    until(train(config), 7)
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs[:9]))
    with pytest.raises(DataError, match=r"the data to train on are no longer those that .* began with \(57 ex.*, 8 ex"):
        list(resume(Path(config.out), []))


def test_other_data_under_the_same_name_are_noticed(tiny: Configure, tmp_path: Path) -> None:
    pairs, config = tmp_path / "pairs.tsv", tiny(data__kind="tsv", data__tsv=str(tmp_path / "pairs.tsv"))
    lines = [f"satz {number}\tsentence {number}\n" for number in range(60)]
    pairs.write_text("".join(lines))
    list(train(config))
    run = Path(config.out)
    for others in ([*lines, "ein satz\ta sentence\n"], lines[1:], [line.replace("satz", "sätze") for line in lines]):
        pairs.write_text("".join(others))
        with pytest.raises(DataError, match="put those back, or start a new run, with init = "):
            list(resume(run, ["train.steps=9"]))
        assert not (run / UNDER_WAY).exists(), "what was refused leaves the model in use"
    pairs.write_text("".join(lines))
    assert losses(list(resume(run, ["train.steps=9"]))).keys() == {9}
    # A run of an earlier version has not written down what it was trained on.
    (run / "data.json").unlink()
    pairs.write_text("".join([*lines, "ein satz\ta sentence\n"]))
    assert losses(list(resume(run, ["train.steps=10"]))).keys() == {10}
