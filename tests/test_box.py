"""The model in the box: its list of examples is no part of its data, its recipe fits its size, its wheel holds it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from clearhead.data.doctor import check, hold_out, hold_out_test, kept_pairs
from clearhead.data.gist import gist
from clearhead.data.sources import open_source
from clearhead.run.settings import find_recipe, read_config

ROOT = Path(__file__).parents[1]
SENTENCES = ROOT / "benchmarks" / "box_sentences.tsv"
RECIPE = "tatoeba-de-zh-en"


def sentences() -> list[list[str]]:
    return [line.split("\t") for line in SENTENCES.read_text(encoding="utf-8").rstrip("\n").split("\n")]


def test_there_are_twenty_examples_of_each_language() -> None:
    rows = sentences()
    assert [language for language, _ in rows] == ["de"] * 20 + ["zh"] * 20
    assert len({text for _, text in rows}) == 40


@pytest.mark.real_data("tatoeba")
def test_nothing_leaks_and_no_example_is_in_the_data(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_DATA", str(real_data.parent))
    data = read_config(find_recipe(RECIPE)).data
    source = open_source(data, "train")
    assert source is not None and data.hold_out_test is not None
    checkup = check(source, data.limits)
    tested = hold_out_test(checkup, data.hold_out_test, data.hold_out_by)
    held = hold_out(checkup, data.hold_out, 1, data.hold_out_by, among=~tested)
    assert 3_200 < tested.sum() < 3_400 and 1_400 < held.sum() < 1_600
    english: list[set[str]] = [set(), set(), set()]
    seen = set()
    for number, text, target in kept_pairs(source, checkup):
        english[2 if tested[number - 1] else 1 if held[number - 1] else 0].add(gist(target))
        seen.add(gist(text))
    trained, validated, final = english
    assert not trained & validated and not trained & final and not validated & final
    assert [text for _, text in sentences() if gist(text) in seen] == []


@pytest.mark.parametrize(
    "recipe",
    [RECIPE, *(f"{RECIPE}-{part}" for part in ("more", "wide", "deep", "diverse", "fine", "agree", "close", "sharp"))],
)
def test_the_recipes_stay_below_sixteen_megabytes(recipe: str) -> None:
    """A byte a parameter and a little for scales, and a tokenizer of less than 80 bytes an entry."""
    from clearhead.models.translator import Translator

    config = read_config(find_recipe(recipe))
    size = config.tokenizer.vocab_size
    model = Translator(config.model.model_copy(update={"source_vocab_size": size, "target_vocab_size": size}))
    assert 1.1 * sum(parameter.numel() for parameter in model.parameters()) + 80 * size < 16_000_000


def test_recipes_and_assets_go_into_the_wheel() -> None:
    tree = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert {"recipes/*.toml", "assets/**/*"} <= set(tree["tool"]["setuptools"]["package-data"]["clearhead"])
