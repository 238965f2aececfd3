"""Every IMDb recipe in a tiny version, on made-up reviews: trained, resumed, scored, used and inspected."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tests.journeys.conftest import Clearhead, assignments
from tests.journeys.made_up_reviews import as_tsv, reviews

TINY = (
    "batches.max_tokens=2048", "model.dim=16", "model.ff_dim=16", "model.num_heads=2", "model.num_layers=1",
    "model.max_len=48", "train.steps=4", "train.warmup=2", "train.validate_every=2",
)  # fmt: skip


@pytest.fixture
def imdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the set's files are, with other reviews in them."""
    (tmp_path / "sets" / "imdb").mkdir(parents=True)
    for seed, (name, count) in enumerate((("train", 60), ("test", 20), ("unsup", 80))):
        plain = as_tsv(tmp_path / f"{name}.tsv", reviews(count, seed, ("good", "bad")))
        # Packed, for a plain file of another size than the set's is refused.
        (tmp_path / "sets" / "imdb" / f"{name}.tsv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path / "sets"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tiny(recipe: str, *more: str) -> list[str]:
    words = ("tokenizer.vocab_size=320", "tokenizer.min_freq=1", "data.hold_out=10")
    return ["train", recipe, *assignments(*TINY, *words, *more)]


@pytest.mark.parametrize("recipe", ["imdb-notes", "imdb"])
def test_a_classifier_recipe_goes_all_the_way(recipe: str, imdb: Path, clearhead: Clearhead) -> None:
    assert clearhead(*tiny(recipe)).code == 0
    run = f"runs/{recipe}"
    assert clearhead("train", run, "--resume", "--set", "train.steps=6").code == 0
    scored = json.loads(clearhead("score", "--model", run, "--split", "test", "--json").out)
    assert scored["count"] == 20 and scored["baseline"]["count"] == 20
    assert clearhead("classify", "--model", run, "the film was great").lines[0] in ("good", "bad")
    assert clearhead("inspect", run, "the film was great", "--out", imdb / "page.html").code == 0


def test_a_bert_is_trained_and_then_fine_tuned(imdb: Path, clearhead: Clearhead) -> None:
    said = clearhead(*tiny("imdb-bert"))
    assert said.code == 0
    assert clearhead("train", "runs/imdb-bert", "--resume", "--set", "train.steps=6").code == 0
    guessed = json.loads(clearhead("score", "--model", "runs/imdb-bert", "--split", "validation", "--json").out)
    assert guessed["count"] > 10 and 0 <= guessed["accuracy"] <= 1
    assert len(clearhead("fill", "--model", "runs/imdb-bert", "the film was [MASK].").lines) == 5
    assert clearhead("inspect", "runs/imdb-bert", "the film was [MASK].", "--out", imdb / "page.html").code == 0
    # As in the recipes, the classifier reads further than the BERT did.
    said = clearhead(*tiny("imdb-pretrained", "model.max_len=64"))
    assert said.code == 0 and "started from runs/imdb-bert, a bert: " in said.err
    assert clearhead("train", "runs/imdb-pretrained", "--resume", "--set", "train.steps=6").code == 0
    tested = clearhead("score", "--model", "runs/imdb-pretrained", "--split", "test", "--json", "--no-baseline")
    assert json.loads(tested.out)["count"] == 20
    assert clearhead("classify", "--model", "runs/imdb-pretrained", "the film was great").lines[0] in ("good", "bad")
    page = ("inspect", "runs/imdb-pretrained", "the film was great", "--out", imdb / "pretrained.html")
    assert clearhead(*page).code == 0


def test_a_classifier_learns_which_words_to_drop(imdb: Path, clearhead: Clearhead) -> None:
    assert clearhead(*tiny("imdb-notes")).code == 0
    for recipe, start in (("imdb-thresholds", "imdb-notes"), ("imdb-pruned", "imdb-thresholds")):
        said = clearhead(*tiny(recipe))
        assert said.code == 0 and f"started from runs/{start}, a classifier: " in said.err
    run = "runs/imdb-pruned"
    assert clearhead("train", run, "--resume", "--set", "train.steps=6").code == 0
    tested = clearhead("score", "--model", run, "--split", "test", "--json", "--no-baseline")
    assert json.loads(tested.out)["count"] == 20
    assert clearhead("classify", "--model", run, "the film was great").lines[0] in ("good", "bad")
    trail = imdb / "trail.png"
    assert clearhead("inspect", run, "the film was great", "--trail", trail, "--out", imdb / "page.html").code == 0
    assert trail.is_file()
    drawn = ("bench", "reduce", run, "--prune", "1", "--rounds", "1", "--out", imdb / "pruning.png")
    assert clearhead(*drawn).code == 0 and (imdb / "pruning.png").is_file()


def test_without_the_bert_the_fine_tuning_says_what_is_missing(imdb: Path, clearhead: Clearhead) -> None:
    said = clearhead(*tiny("imdb-pretrained"))
    assert said.code == 66 and "runs/imdb-bert" in said.err
