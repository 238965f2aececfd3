"""A classifier's run: it resumes to the bit, starts from a BERT, and other processes open the same data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.journeys.made_up_reviews import as_tsv, reviews
from tests.run.assembling import assembled

from clearhead.checkpoint import load_model, model_tensors
from clearhead.data.examples import Draw
from clearhead.data.labelled import LabelledTexts
from clearhead.errors import DataError
from clearhead.run.classifying import LoadedClassifier
from clearhead.run.settings import ClassifierRun, resolve
from clearhead.run.tasks import TASKS
from clearhead.run.training import resume, train
from clearhead.training.events import Noted, Progress

pytestmark = pytest.mark.usefixtures("unchecked")

TREE: dict[str, Any] = {
    "tokenizer": {"kind": "char"},
    "batches": {"max_tokens": 600},
    "model": {
        "kind": "classifier", "dim": 8, "ff_dim": 8, "num_heads": 2, "num_layers": 1, "max_len": 40, "dropout": 0.2,
        "long_texts": "windows",
    },
    "train": {"steps": 6, "lr": 0.01, "warmup": 2, "validate_every": 3, "log_every": 1},
}  # fmt: skip


@pytest.fixture
def configured(tmp_path: Path) -> Any:
    as_tsv(tmp_path / "train.tsv", reviews(40, 1))
    as_tsv(tmp_path / "validation.tsv", reviews(10, 2, ("good", "bad")))

    def configure(out: str = "run", data: dict[str, Any] | None = None, **model: Any) -> ClassifierRun:
        files = {"train": str(tmp_path / "train.tsv"), "hold_out": 5, "drop_tokens": 0.3}
        tree = {**TREE, "model": {**TREE["model"], **model}, "data": {**files, **(data or {})}}
        config = resolve({**tree, "out": str(tmp_path / out)})
        assert isinstance(config, ClassifierRun)
        return config

    return configure


def test_it_goes_on_as_if_it_had_never_been_interrupted(configured: Any, tmp_path: Path) -> None:
    whole = list(train(configured("whole")))
    wishes = iter([False] * 3 + [True])
    begun = list(train(configured(), stop=lambda: next(wishes)))
    rest = list(resume(tmp_path / "run", []))
    losses = [[event.loss for event in events if isinstance(event, Progress)] for events in (whole, begun, rest)]
    assert losses[0] == losses[1] + losses[2]
    ours, theirs = (model_tensors(load_model(tmp_path / name).model) for name in ("run", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("others", [False, True])
def test_other_processes_open_the_same(configured: Any, tmp_path: Path, others: bool) -> None:
    data = {"validation": str(tmp_path / "validation.tsv"), "hold_out": None} if others else {}
    config = configured(data=data)
    prepared = assembled(config).prepared
    opened = TASKS["classifier"].open_prepared(config, prepared.tokenizers, prepared.ticket())
    for mine, theirs in ((prepared.training, opened.training), (prepared.validation, opened.validation)):
        assert isinstance(mine, LabelledTexts) and isinstance(theirs, LabelledTexts)
        assert mine.names == theirs.names == ("bad", "good", "so-so") and len(mine) == len(theirs)
        rows = np.arange(len(mine))
        one, other = mine.batch(rows, Draw(1, 0)), theirs.batch(rows, Draw(1, 0))
        assert np.array_equal(one.ids, other.ids) and np.array_equal(one.labels, other.labels)


def test_labels_of_other_texts_keep_their_places(configured: Any, tmp_path: Path) -> None:
    config = configured(data={"validation": str(tmp_path / "validation.tsv"), "hold_out": None})
    validation = assembled(config).prepared.validation
    assert isinstance(validation, LabelledTexts)
    wanted = [validation.names.index(label) for _, label in reviews(10, 2, ("good", "bad"))]
    assert validation.texts.tags.tolist() == wanted


def test_nothing_is_cut_in_silence(configured: Any) -> None:
    notes = [event.message for event in train(configured()) if isinstance(event, Noted)]
    assert any(
        "35 of 35 training texts have more than 38 tokens: they are read in windows of 38" in note for note in notes
    )
    ends = [event.message for event in train(configured("ends", long_texts="ends")) if isinstance(event, Noted)]
    assert any("tokens: their first 10 and last 28 are read (model.long_texts)" in note for note in ends)


def test_validation_reads_all_windows_as_use_does(configured: Any) -> None:
    made = assembled(configured())
    validation, tokenizers = made.prepared.validation, made.prepared.tokenizers
    assert isinstance(validation, LabelledTexts) and tokenizers is not None
    measured = made.loop.measure()
    loaded = LoadedClassifier(made.model, tokenizers)  # type: ignore[arg-type]
    probs = loaded.judged([validation.ids(row) for row in range(len(validation))])
    right = probs[np.arange(len(validation)), validation.texts.tags]
    assert measured.nll == pytest.approx(float(-np.log(right).mean()), rel=1e-5)
    assert measured.accuracy == pytest.approx((probs.argmax(1) == validation.texts.tags).mean())


def test_a_label_of_which_none_is_left_is_refused(configured: Any, tmp_path: Path) -> None:
    rows = [*reviews(30, 1, ("good", "bad")), ("one of a kind", "rare")]
    as_tsv(tmp_path / "train.tsv", rows)
    for seed in range(40):
        config = configured(data={"hold_out": 12}).model_copy(update={"train": configured().train})
        config = config.model_copy(update={"train": config.train.model_copy(update={"seed": seed})})
        try:
            TASKS["classifier"].examine(config)
        except DataError as error:
            assert "all texts with the label 'rare' were held out" in str(error)
            return
    raise AssertionError("with some seed the only one must have been held out")


def test_two_passes_that_are_to_agree_train_too(configured: Any) -> None:
    config = configured()
    config = config.model_copy(update={"train": config.train.model_copy(update={"agreement": 3.0, "steps": 2})})
    assert all(np.isfinite(event.loss) for event in train(config) if isinstance(event, Progress))
