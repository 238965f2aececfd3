"""Fewer tokens on words: a classifier and a translator learn which to drop, are used, scored and looked at."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.journeys.conftest import TINY as TRANSLATOR
from tests.journeys.conftest import assignments, make

from clearhead.checkpoint import load_model

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
    settings = assignments(
        *TINY,
        "train.steps=20",
        "model.reduce.kind=prune",
        "model.reduce.threshold=0.9",
        "train.threshold_rate=1",
    )
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


@pytest.mark.parametrize("how", [("merge", "--r", 2, "--r-last", 0), ("prune", "--threshold", 1.0), ("none",)])
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


# Translating ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [("merge", "--r", 3), ("prune", "--threshold", 1.0), ("none",)])
def test_a_translator_is_used_and_scored_with_fewer_tokens(
    clearhead: Clearhead, files_run: Path, corpus: Path, how: tuple[Any, ...]
) -> None:
    texts = (corpus / "test.de").read_bytes()
    whole, fewer = (
        clearhead("translate", "--model", files_run, "--beam", 2, "--scores", *flags, stdin=texts)
        for flags in ((), ("--reduce", *how))
    )
    assert len(fewer.lines) == len(whole.lines) == 20
    assert (fewer.lines == whole.lines) == (how == ("none",))
    pairs = ("--tsv", corpus / "test.tsv", "--against", files_run, "--json")
    scored = clearhead("score", "--model", files_run, *pairs, "--reduce", *how)
    assert scored.code == 0 and "bleu" in json.loads(scored.out), scored.err


def test_merged_words_of_a_source_are_drawn_and_told(clearhead: Clearhead, files_run: Path, tmp_path: Path) -> None:
    text, files = "vierhundertdreiundzwanzig", (tmp_path / "x.json", tmp_path / "trail.png", tmp_path / "x.png")
    said = clearhead(
        "inspect", files_run, text, "--reduce", "merge", "--r", 2, "--json", files[0], "--trail", files[1],
        "--png", files[2], "--head", "cross",
    )  # fmt: skip
    assert said.code == 0, said.err
    assert all(path.stat().st_size > 500 for path in files)
    view = json.loads(files[0].read_text())
    assert [block["keys"] for block in view["attention"]] == ["source", "read", "source"]
    assert "".join(token["text"] for token in view["tokens"]["source"]).startswith(text)


def test_a_translator_learns_which_tokens_of_the_source_to_drop(
    clearhead: Clearhead, files_run: Path, corpus: Path, tmp_path: Path
) -> None:
    files = ("--source", corpus / "train.de", "--target", corpus / "train.en")
    start, stages = files_run, ("prune", "prune_hard")
    for kind in stages:
        settings = assignments(
            *TRANSLATOR, "train.steps=4", "train.validate_every=4", f"init={start}", f"model.reduce.kind={kind}"
        )
        said = clearhead("train", "translator", *files, "--out", tmp_path / kind, *settings)
        assert said.code == 0, said.err
        start = tmp_path / kind
    learnt, kept = (
        load_model(tmp_path / kind / "model").model.encoder.blocks[0].reduction.threshold.item() for kind in stages
    )
    assert learnt != pytest.approx(0.3) and kept == learnt
    assert "prune_hard" in clearhead("info", start).out
    assert clearhead("translate", "--model", start, "vierhundert").code == 0


def test_flags_that_make_nothing_fewer_are_refused_in_one_line(
    clearhead: Clearhead, files_run: Path, corpus: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    assert clearhead("export", files_run, "--to", "ctranslate2", "--out", copy).code == 0
    for words, message in (
        (("translate", "--model", files_run, "--r", 2, "x"), "add --reduce merge or --reduce prune"),
        (("translate", "--model", copy, "--reduce", "merge", "x"), "an exported model keeps all its tokens"),
        (("score", "--model", copy, "--tsv", corpus / "test.tsv", "--reduce", "merge"), "keeps all its tokens"),
        (
            ("score", "--hypotheses", corpus / "test.en", "--target", corpus / "test.en", "--reduce", "merge"),
            "are compared with --target only: leave out --reduce",
        ),
        (("inspect", files_run, "--importance", "--split", "test", "--r", 2), "--importance has no use for --r"),
    ):
        said = clearhead(*words)
        assert (said.code, said.out) == (2, ""), (words, said)
        assert message in said.err and len(said.err.strip().splitlines()) == 1, (words, said.err)
