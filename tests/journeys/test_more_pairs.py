"""From a trained translator to more pairs, and to a translator that was trained on them too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from clearhead.engines.texts import TextTranslator
from clearhead.run import scoring

from .conftest import TINY, Clearhead, assignments

VERBS = {"sehe": "see", "male": "paint", "suche": "seek", "will": "want"}
NOUNS = {"Hund": "dog", "Hut": "hat", "Ball": "ball", "Fisch": "fish", "Baum": "tree", "Topf": "pot", "Stuhl": "chair"}


@pytest.fixture
def run(tmp_path: Path, clearhead: Clearhead, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [
        f"Ich {verb} den {noun} {number}.\tI {doing} the {thing} {number}.\n"
        for (verb, doing), (noun, thing), number in product(VERBS.items(), NOUNS.items(), (1, 2, 3))
    ]
    Path("pairs.tsv").write_text("".join(rows), encoding="utf-8")
    settings = assignments(*TINY, "train.steps=1", "data.hold_out=20", "data.hold_out_by=target")
    assert clearhead("train", "translator", "--tsv", "pairs.tsv", "--out", "run", *settings).code == 0
    return tmp_path / "run"


def test_more_pairs_are_made_and_trained_on(
    run: Path, clearhead: Clearhead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = ("--forward", "run", "--backward", "run")
    made = clearhead("data", "diversify", "run", *models, "--rare", "4", "--beam", "1", "--out", "more.tsv")
    assert made.code == 0 and made.out == "", made.err
    assert "64 pairs to make others of" in made.err and "pairs by run, understood by run" in made.err
    rows = (tmp_path / "more.tsv").read_text(encoding="utf-8").splitlines()
    assert len(set(rows)) == len(rows) > 4 and all(row.count("\t") == 1 for row in rows)
    assert any(row.startswith("Ich ") and "\tI " in row for row in rows)
    again = clearhead("data", "diversify", "run", "--rare", "4", "--out", "more.tsv")
    assert again.code == 73 and again.err.count("\n") == 1
    settings = assignments(*TINY, "train.steps=1", "data.hold_out=20", "data.hold_out_by=target", "data.extra=more.tsv")
    trained = clearhead("train", "translator", "--tsv", "pairs.tsv", "--out", "two", *settings)
    assert trained.code == 0 and "of them from more.tsv" in trained.err, trained.err
    assert "from pairs.tsv, and from more.tsv" in (tmp_path / "two" / "model" / "README.md").read_text(encoding="utf-8")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    went_on = clearhead("train", "../two", "--resume", "--set", "train.steps=2")
    assert went_on.code == 0 and "resuming at step 1" in went_on.err, went_on.err
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more.tsv").write_text("Ich\tI\n")
    other = clearhead("train", "two", "--resume", "--set", "train.steps=3")
    assert other.code == 65 and "the data to train on are no longer those" in other.err


def test_what_was_translated_before_a_stop_is_not_translated_again(
    run: Path, clearhead: Clearhead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def answer(_: TextTranslator, texts: Sequence[str], most: int, **settings: Any) -> Iterator[str]:
        asked.append(len(texts))
        for number, text in enumerate(texts):
            if number == most:
                raise KeyboardInterrupt
            yield f"Ich suche {len(text)}."

    make = ("data", "diversify", "run", "--backward", "run", "--beam", "1", "--out")
    for out, most in (("more.tsv", 3), ("more.tsv", 1_000), ("at-once.tsv", 1_000)):
        monkeypatch.setattr(scoring, "translated", partial(answer, most=most))
        ended = clearhead(*make, out)
        assert ended.code == (130 if most == 3 else 0), ended.err
        is_begun = "3 translations are kept in more.tsv.begun: the same command goes on from there" in ended.err
        assert is_begun == (most == 3) == (tmp_path / "more.tsv.begun").exists() != (tmp_path / out).exists()
    assert asked[1:] == [asked[0] - 3, asked[0]]
    assert (tmp_path / "more.tsv").read_bytes() == (tmp_path / "at-once.tsv").read_bytes() != b""


def test_somebody_has_to_say_what_makes_pairs(run: Path, clearhead: Clearhead) -> None:
    nothing = clearhead("data", "diversify", "run", "--out", "more.tsv")
    assert nothing.code == 2 and "--forward MODEL, --backward MODEL or --rare N" in nothing.err
    (run / "config.toml").unlink()
    (run / "model" / "training_config.toml").unlink()
    unknown = clearhead("data", "diversify", "run", "--rare", "1", "--out", "more.tsv")
    assert unknown.code == 66 and "run does not say what it was trained on" in unknown.err
