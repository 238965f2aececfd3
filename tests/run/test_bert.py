"""A BERT's run: it resumes to the bit, and other processes open the same data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.journeys.made_up_reviews import reviews
from tests.run.assembling import assembled

from clearhead.checkpoint import load_model, model_tensors
from clearhead.data.documents import MaskedDocuments
from clearhead.data.examples import Draw
from clearhead.run.assembling import _leaders_samples
from clearhead.run.filling import GAP
from clearhead.run.settings import BertRun, resolve
from clearhead.run.tasks import TASKS
from clearhead.run.training import resume, train
from clearhead.text.kinds import TokenizerConfig
from clearhead.text.specials import UNK
from clearhead.training.distributed import Team
from clearhead.training.events import Progress, Validated

pytestmark = pytest.mark.usefixtures("unchecked")

WAYS: list[dict[str, dict[str, Any]]] = [
    {"data": {}, "model": {}},
    {"data": {"pack": True}, "model": {}},
    {"data": {"whole_words": True}, "model": {"next_sentence": False}},
]


@pytest.fixture
def configured(tmp_path: Path) -> Any:
    lines = [
        f"{text} {other.capitalize()}\n" for (text, _), (other, _) in zip(reviews(40, 1), reviews(40, 2), strict=True)
    ]
    (tmp_path / "documents.txt").write_text("".join(lines), encoding="utf-8")

    def configure(way: dict[str, dict[str, Any]], out: str = "run") -> BertRun:
        sizes = {"dim": 8, "ff_dim": 8, "num_heads": 2, "num_layers": 1, "max_len": 48, "dropout": 0.2}
        config = resolve(
            {
                "out": str(tmp_path / out),
                "data": {"train": str(tmp_path / "documents.txt"), "hold_out": 6, **way["data"]},
                "tokenizer": {"kind": "bpe", "vocab_size": 300},
                "batches": {"max_tokens": 500},
                "model": {"kind": "bert", **sizes, **way["model"]},
                "train": {"steps": 6, "lr": 0.01, "warmup": 2, "validate_every": 3, "log_every": 1},
            }
        )
        assert isinstance(config, BertRun)
        return config

    return configure


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_it_goes_on_as_if_it_had_never_been_interrupted(configured: Any, tmp_path: Path, way: Any) -> None:
    whole = list(train(configured(way, "whole")))
    wishes = iter([False] * 3 + [True])
    begun = list(train(configured(way), stop=lambda: next(wishes)))
    rest = list(resume(tmp_path / "run", []))
    losses = [[event.loss for event in events if isinstance(event, Progress)] for events in (whole, begun, rest)]
    assert losses[0] == losses[1] + losses[2]
    ours, theirs = (model_tensors(load_model(tmp_path / name).model) for name in ("run", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    validated = [event for event in whole if isinstance(event, Validated)]
    assert validated[0].accuracy is not None and validated[0].samples


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_other_processes_open_the_same(configured: Any, way: Any) -> None:
    config = configured(way)
    prepared = assembled(config).prepared
    opened = TASKS["bert"].open_prepared(config, prepared.tokenizers, prepared.ticket())
    assert opened.num_trained == prepared.num_trained == 34
    for mine, theirs in ((prepared.training, opened.training), (prepared.validation, opened.validation)):
        assert isinstance(mine, MaskedDocuments) and isinstance(theirs, MaskedDocuments)
        one, other = (examples.batch(np.arange(len(mine)), Draw(1, 2)) for examples in (mine, theirs))
        assert np.array_equal(one.ids, other.ids) and np.array_equal(one.answers, other.answers)


def test_a_person_is_shown_whole_words_and_those_that_are_not_known(configured: Any) -> None:
    config = configured({"data": {}, "model": {"next_sentence": False}})
    config = config.model_copy(update={"tokenizer": TokenizerConfig(kind="word", min_freq=30)})
    run = assembled(config)
    assert run.prepared.tokenizers is not None
    tokenizer = run.prepared.tokenizers.source
    known = {*tokenizer.pieces(range(tokenizer.vocab_size)), GAP}
    samples = TASKS["bert"].samples(run.model, run.prepared, "cpu")
    text = " ".join(sample.given for sample in samples)
    assert set(re.findall(r"[\[<]?\w+[]>]?", text)) <= known
    assert UNK in text and GAP in text
    assert all(token in known for sample in samples for token in f"{sample.wanted} | {sample.made}".split(" | "))


def test_what_is_held_out_is_not_trained_on(configured: Any) -> None:
    prepared = assembled(configured(WAYS[0])).prepared
    training, validation = prepared.training, prepared.validation
    assert isinstance(training, MaskedDocuments) and isinstance(validation, MaskedDocuments)
    assert not set(training.spans.texts.tags.tolist()) & set(validation.spans.texts.tags.tolist())


def test_the_whole_model_that_the_leader_is_lent_lies_where_its_samples_do(
    configured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, lent = assembled(configured(WAYS[0])), []
    monkeypatch.setattr(
        type(TASKS["bert"]), "samples", lambda self, model, prepared, device: lent.append((model, device))
    )
    _leaders_samples(run.model, run.prepared, Team(device=torch.device("meta")), is_sharded=True)
    ((model, device),) = lent
    assert model is not run.model and device == "meta"
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
