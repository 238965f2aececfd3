"""Another kind of model goes through the very same run: it trains, resumes, is measured, saved, loaded and refused."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.run.assembling import assembled
from tests.run.made_up_kind import LoadedMajority, MajorityRun, Rows, made_up_kind

import clearhead
from clearhead.checkpoint import load_model, model_tensors, named_tensors, verify_description
from clearhead.cli import run as command
from clearhead.data.batches import BatchConfig, Batches, fixed_parts
from clearhead.errors import ConfigError, StorageError, UsageError
from clearhead.run.settings import RunConfig, resolve, unset
from clearhead.run.starting import take_weights
from clearhead.run.tasks import TASKS
from clearhead.run.training import rehearse, resume, train
from clearhead.run.translating import LoadedTranslator
from clearhead.run.using import load_as
from clearhead.storage import SUMS
from clearhead.training.events import Finished, Noted, Progress, Validated
from clearhead.training.optimizers import OPTIMIZERS, rate_shares

__all__ = ["made_up_kind"]
pytestmark = pytest.mark.usefixtures("made_up_kind", "unchecked")

TREE: dict[str, Any] = {
    "model": {"kind": "majority"},
    "batches": {"max_tokens": 60},
    "train": {"steps": 40, "lr": 0.02, "warmup": 4, "validate_every": 20, "log_every": 1, "smoothing": 0.0},
}


def configured(tmp_path: Path, out: str = "run", **train: Any) -> RunConfig:
    return resolve({**TREE, "train": {**TREE["train"], **train}, "out": str(tmp_path / out)})


def losses(events: list[Any]) -> list[float]:
    return [event.loss for event in events if isinstance(event, Progress)]


def test_it_learns_and_its_right_answers_are_counted(tmp_path: Path) -> None:
    config = configured(tmp_path)
    events = list(train(config))
    last = [event for event in events if isinstance(event, Validated)][-1]
    rows = assembled(config).prepared.validation
    assert isinstance(rows, Rows)
    model = clearhead.load(config.out)
    assert isinstance(model, LoadedMajority)
    right = [str(model.decide(row)) == sample.wanted for row, sample in zip(rows.rows, last.samples, strict=False)]
    assert last.accuracy is not None
    assert last.accuracy * len(rows) == pytest.approx(round(last.accuracy * len(rows)))
    assert last.accuracy > 0.75 and len(right) == 3
    line = next(line for line in (tmp_path / "run" / "train.log").read_text().splitlines() if "validation at" in line)
    assert "  accuracy " in line and "ppl" not in line
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["accuracy"] for row in metrics if row["event"] == "validated"][-1] == last.accuracy


def test_the_log_speaks_in_its_own_terms(tmp_path: Path) -> None:
    config = configured(tmp_path)
    events = list(train(config))
    steps = [event for event in events if isinstance(event, Progress)]
    assert all(step.accuracy is not None and 0 <= step.accuracy <= 1 and step.perplexity is None for step in steps)
    assert np.mean([step.accuracy for step in steps[-5:]]) > np.mean([step.accuracy for step in steps[:5]])
    run = tmp_path / "run"
    log = (run / "train.log").read_text()
    assert re.search(r"step 1/40  loss \S+  accuracy \d+\.\d %  lr \S+  gnorm \S+  \S+ rows/s  eta", log)
    assert re.match(
        r"step 20\n  row       \[.*\]\n  majority  [01]\n  said      [01]\n\n", (run / "samples.txt").read_text()
    )
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    told = next(row for row in metrics if row["event"] == "validated")
    assert set(told) == {"event", "step", "loss", "accuracy", "is_best", "samples"}
    assert set(told["samples"][0]) == {"row", "majority", "said"}


@pytest.mark.parametrize("kind", [kind for kind in TASKS if kind != "majority"])
def test_every_kind_has_three_different_heads(kind: str) -> None:
    terms = TASKS[kind].terms
    assert terms.unit and len(set(terms.heads)) == 3


def test_it_goes_on_as_if_it_had_never_been_interrupted(tmp_path: Path) -> None:
    whole = list(train(configured(tmp_path, "whole", steps=9)))
    wishes = iter([False] * 4 + [True])
    begun = list(train(configured(tmp_path, steps=9), stop=lambda: next(wishes)))
    rest = list(resume(tmp_path / "run", []))
    assert losses(whole) == losses(begun) + losses(rest)
    ours, theirs = (model_tensors(load_model(tmp_path / name).model) for name in ("run", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_its_directory_has_what_it_needs_and_no_more(tmp_path: Path) -> None:
    config = configured(tmp_path, steps=2)
    finished = list(train(config))[-1]
    assert isinstance(finished, Finished) and finished.model_dir is not None
    names = {path.name for path in finished.model_dir.iterdir()}
    assert names == {"config.json", "model.safetensors", "README.md", "training_config.toml", SUMS}
    stored = load_model(finished.model_dir)
    assert (stored.kind, stored.tokenizers, stored.generation) == ("majority", None, None)
    card = (finished.model_dir / "README.md").read_text()
    assert "| trained on | 48 rows from nowhere |" in card and "per row (" in card
    verify_description(tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text("{}")
    with pytest.raises(StorageError, match=r"config\.json is damaged"):
        verify_description(tmp_path / "run")


def test_a_verb_of_another_kind_says_what_it_is_and_what_it_is_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(tmp_path, steps=1)
    list(train(config))
    with pytest.raises(UsageError) as error:
        load_as(LoadedTranslator, config.out)
    assert str(error.value) == f"{config.out} is a majority: use clearhead decide"
    assert command(["translate", "--model", config.out, "121"]) == 2
    assert f"{config.out} is a majority: use clearhead decide" in capsys.readouterr().err


# The configuration ---------------------------------------------------------------------------------------------------


def test_a_config_is_checked_against_its_own_kind() -> None:
    config = resolve(TREE)
    assert isinstance(config, MajorityRun) and config.out == "runs/majority"
    for change, said in (
        ("model.dimm=3", "unknown key 'model.dimm', did you mean 'model.dim'?"),
        ("model.encoder_layers=3", "unknown key 'model.encoder_layers', did you mean 'model.num_layers'?"),
        ("data.tvs='a'", "unknown key 'data.tvs', did you mean 'data.tsv'?"),
        ("model.kind='majorty'", "'model.kind' = 'majorty': unknown model, did you mean 'majority'?"),
    ):
        with pytest.raises(ConfigError) as error:
            resolve(TREE, [change])
        assert said in str(error.value)


def test_settings_of_a_kind_can_be_listed_before_any_is_set() -> None:
    tree = unset("majority").model_dump()
    assert tree["model"]["dim"] == 8 and tree["train"]["steps"] is None and tree["data"]["count"] == 60


def test_without_a_config_sizes_are_chosen_by_its_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text("".join(f"{'12' * (number % 4)}{1 + number % 2}\n" for number in range(40)))
    out = str(tmp_path / "chosen")
    assert command(["train", "majority", "--tsv", str(rows), "--out", out]) == 0
    said = capsys.readouterr().err
    assert "40 rows" in said and "clearhead decide --model" in said.replace("\n", " ")
    assert load_model(Path(out)).model.config.dim == 16
    assert command(["train", "majority", "--source", str(rows)]) == 2
    assert "a majority is not trained on --source: --tsv FILE" in capsys.readouterr().err


# Chance --------------------------------------------------------------------------------------------------------------


def test_what_chance_does_follows_from_the_epoch_and_not_from_who_makes_the_batch(tmp_path: Path) -> None:
    rows = assembled(configured(tmp_path)).prepared.training
    assert isinstance(rows, Rows)

    def seen(rank: int, size: int, accumulate: int = 5) -> list[Any]:
        batches = Batches(rows, BatchConfig(max_tokens=30), seed=3)
        shares = islice(batches.shares(accumulate=accumulate, rank=rank, size=size), 12)
        parts = [[part.batch for part in share.parts if part.counts] for share in shares]
        return [sorted(tuple(row[row > 0]) for batch in step for row in batch.ids) for step in parts]

    alone, shared = seen(0, 1), [seen(rank, 3) for rank in range(3)]
    for step, whole in enumerate(alone):
        assert whole == sorted(row for one in shared for row in one[step])
    assert {draw.epoch for draw in rows.draws if draw is not None} >= {0, 1, 2}
    assert {draw.seed for draw in rows.draws if draw is not None} == {3}


def test_nothing_is_left_to_chance_in_validation(tmp_path: Path) -> None:
    rows = Rows([[1, 2, 2], [2, 1, 1, 1, 2]])
    batches = [part.batch for part in fixed_parts(rows, BatchConfig())]
    assert rows.draws == {None}
    assert [row[row > 0].tolist() for row in batches[0].ids] == rows.rows


def test_examples_of_one_length_are_neither_sorted_nor_cut_into_pools() -> None:
    class Even(Rows):
        @property
        def sort_keys(self) -> tuple[Any, ...]:
            return ()

    rows = Even([[1, 2, 1]] * 20)
    plan = Batches(rows, BatchConfig(max_tokens=9, pool=1), seed=1).epoch(0)
    assert sorted(map(len, plan)) == [2, 3, 3, 3, 3, 3, 3]
    assert sorted(np.concatenate(list(plan))) == list(range(20))
    assert [part.batch.num_answers for part in fixed_parts(rows, BatchConfig(batch_size=8))] == [8, 8, 4]


# Starting from other weights -----------------------------------------------------------------------------------------


def test_a_run_starts_from_weights_that_fit(tmp_path: Path) -> None:
    list(train(configured(tmp_path, "first", steps=3)))
    tree = {**TREE, "init": str(tmp_path / "first"), "out": str(tmp_path / "second")}
    tree["train"] = {**TREE["train"], "steps": 1, "lr": 1e-30}
    notes = [event.message for event in train(resolve(tree)) if isinstance(event, Noted)]
    before, after = (model_tensors(load_model(tmp_path / name).model) for name in ("first", "second"))
    assert f"started from {tmp_path / 'first'}, a majority: {len(before)} of {len(before)} tensors taken" in notes
    for name in before:
        torch.testing.assert_close(after[name], before[name])
    assert any(note.startswith("started from") for note in (event.message for event in rehearse(resolve(tree))))


def test_what_is_new_is_named_and_what_must_fit_is_refused_if_it_does_not(tmp_path: Path) -> None:
    list(train(configured(tmp_path, "first", steps=1)))
    start = load_model(tmp_path / "first")
    new = assembled(configured(tmp_path)).model
    new.head = torch.nn.Linear(8, 5)
    count = len(named_tensors(new))
    assert take_weights(new, start).endswith(f"{count - 2} of {count} tensors taken; new: head.weight, head.bias")
    wide = assembled(resolve(TREE, ["model.dim=16"])).model
    with pytest.raises(ConfigError, match=r"embedding\.weight is 3x8 there and 3x16 here; give \[model\] the sizes"):
        take_weights(wide, start)
    deep = assembled(resolve(TREE, ["model.num_layers=2"])).model
    where = re.escape(str(start.path))
    said = rf"cannot start a majority from {where}, which is a majority: it has no encoder\.blocks\.1\."
    with pytest.raises(ConfigError, match=said):
        take_weights(deep, start)


# Rates by layer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("tables", [1.0, 0.25])
def test_layers_near_the_input_learn_more_slowly(optimizer: str, tables: float) -> None:
    settings = ["model.num_layers=2", "train.layer_decay=0.5", f"train.optimizer='{optimizer}'"]
    run = assembled(resolve(TREE, [*settings, f"train.table_rate={tables}"]))
    shares = rate_shares(run.model, 0.5, tables)
    found = {name: shares[parameter] for name, parameter in run.model.named_parameters()}
    assert found["embedding.weight"] == tables * 0.5**3
    assert {share for name, share in found.items() if ".blocks.0." in name} == {0.5**2}
    assert {share for name, share in found.items() if ".blocks.1." in name} == {0.5}
    assert {found[name] for name in ("head.weight", "head.bias", "encoder.final_norm.weight")} == {1.0}
    run.loop.step(run.loop.shares(), 4, 40)
    rates = {id(p): group["lr"] for group in run.loop.optimizer.param_groups for p in group["params"]}
    for name, parameter in run.model.named_parameters():
        assert rates[id(parameter)] == pytest.approx(0.02 * found[name])


def test_without_a_decay_there_is_one_rate_and_one_group(tmp_path: Path) -> None:
    assert len(assembled(configured(tmp_path)).loop.optimizer.param_groups) == 1
