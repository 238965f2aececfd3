"""Fewer tokens on words: a small classifier learns which to drop, is used, scored and looked at, all from the shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.journeys.conftest import assignments, make

Clearhead = Callable[..., Any]

TINY = (
    "tokenizer.kind=word", "model.dim=16", "model.ff_dim=16", "model.num_heads=2", "model.num_layers=2",
    "model.max_len=24", "model.dropout=0.0", "batches.max_tokens=256", "train.warmup=2", "train.log_every=2",
    "train.validate_every=10", "train.epochs=100.0",
)  # fmt: skip


@pytest.fixture(scope="session")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts with one word that matters among many that do not; not to be changed."""
    path = tmp_path_factory.mktemp("reviews") / "labelled.tsv"
    filler = "the film with some people in it that they made over there"
    rows = [
        f"{' '.join(filler.split()[: 3 + number % 9])} {word} {number}\t{label}\n"
        for number in range(40)
        for word, label in (("wonderful", "good"), ("dreadful", "bad"))
    ]
    path.write_text("text\tlabel\n" + "".join(rows), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def pruned_run(reviews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that has begun to learn which tokens to drop; not to be changed."""
    out = tmp_path_factory.mktemp("runs") / "pruned"
    settings = assignments(*TINY, "train.steps=20", "model.reduce.kind=prune", "model.reduce.threshold=0.9")
    cache = tmp_path_factory.getbasetemp() / "cache"
    make(cache, "train", "classifier", "--tsv", reviews, "--out", out, *settings)
    return out


def test_dropped_words_are_drawn_and_told(clearhead: Clearhead, pruned_run: Path, tmp_path: Path) -> None:
    text, files = "the film with some wonderful people in it", (tmp_path / "x.json", tmp_path / "trail.png")
    said = clearhead("inspect", pruned_run, text, "--json", files[0], "--trail", files[1])
    assert said.code == 0, said.err
    assert said.lines[0] in ("good", "bad")
    assert files[1].stat().st_size > 500
    view = json.loads(files[0].read_text())
    (block,) = view["attention"]
    assert block["kind"] == "encoder" and block["layers"] == 2


@pytest.mark.parametrize("how", [("merge", "--r", 2), ("prune", "--threshold", 1.0), ("none",)])
def test_a_classifier_is_used_and_scored_with_fewer_tokens(
    clearhead: Clearhead, pruned_run: Path, how: tuple[Any, ...]
) -> None:
    text = "the film with some dreadful people in it"
    assert clearhead("classify", "--model", pruned_run, "--reduce", *how, text).lines[0] in ("good", "bad")
    scored = clearhead("score", "--model", pruned_run, "--split", "validation", "--no-baseline", "--reduce", *how)
    assert scored.code == 0 and scored.lines[0].startswith("accuracy"), scored.err


def test_what_fewer_words_give_is_measured(clearhead: Clearhead, pruned_run: Path, tmp_path: Path) -> None:
    said = clearhead(
        "bench", "reduce", pruned_run, "--prune", 0, 1, 2, "--rounds", 1, "--split", "validation",
        "--out", tmp_path / "x.svg",
    )  # fmt: skip
    assert said.code == 0, said.err
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.lines if line.startswith("|")]
    assert [row[0] for row in rows[2:]] == ["all tokens", *(f"prune, learnt x {scale}" for scale in (0, 1, 2))]
    left = [float(row[5]) for row in rows[2:]]
    assert left[0] == left[1] > left[2] > left[3]
    assert rows[2][1] == rows[3][1], "a threshold of zero changes no answer"
