"""The model card: what hubs read in front, what people read below."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from clearhead.data.sets import SETS
from clearhead.models.translator import Translator
from clearhead.run.card import altered_card, model_card, with_section
from clearhead.run.settings import RunConfig, resolve
from clearhead.training.events import Finished
from clearhead.version import VERSION

SHAPE = {"source_vocab_size": 1200, "target_vocab_size": 1100, "dim": 8, "ff_dim": 8, "num_heads": 2}
DATA = {
    "files": {"kind": "files", "source": "a.de", "target": "a.en", "source_language": "de", "target_language": "en"},
    "tsv": {"kind": "tsv", "tsv": "pairs.tsv"},
    "parts": {
        "kind": "parts",
        "dataset": "tatoeba",
        "target_language": "en",
        "parts": [{"tsv": "deu.txt", "language": "de"}, {"tsv": "cmn.hans.txt", "language": "zh"}],
    },
    "numbers": {"kind": "numbers", "largest": 5000, "source_language": "zh", "target_language": "de"},
}


def card_for(kind: str) -> tuple[str, RunConfig]:
    config = resolve({"data": DATA[kind], "model": SHAPE, "train": {"steps": 1500, "smoothing": 0.2}})
    finished = Finished(1500, "early stop", 3725.0, 1000, 1.0)
    return model_card(config, Translator(config.model), finished, 1.23456, 12_345), config


@pytest.mark.parametrize(
    ("kind", "front", "title", "origin"),
    [
        ("files", ["language:", "- de", "- en"], "de → en", "12,345 pairs from a.de and a.en"),
        ("tsv", [], "source → target", "12,345 pairs from pairs.tsv"),
        (
            "parts",
            ["language:", "- de", "- zh", "- en"],
            "de, zh → en",
            f"12,345 pairs from deu.txt and cmn.hans.txt of the set tatoeba ({SETS['tatoeba'].origin})",
        ),
        (
            "numbers",
            ["language:", "- zh", "- de"],
            "zh → de",
            "12,345 pairs from the built-in number words up to 5,000",
        ),
    ],
)
def test_the_card_says_where_the_model_comes_from(kind: str, front: list[str], title: str, origin: str) -> None:
    card, _ = card_for(kind)
    lines = card.split("\n")
    assert lines[: 4 + len(front)] == ["---", "library_name: clearhead", "pipeline_tag: translation", *front, "---"]
    assert f"# Translator, {title}" in lines
    assert f"| trained on | {origin} |" in lines
    assert "None" not in card


def test_the_card_says_what_the_model_is_and_how_it_was_made() -> None:
    card, config = card_for("files")
    parameters = sum(p.numel() for p in Translator(config.model).parameters())
    for row in (
        f"| parameters | {parameters:,} |",
        "| shape | 3+3 layers, 8 wide, 2 heads, pre-norm, sinusoidal positions |",
        "| tokenizer | bpe, 1,200 source and 1,100 target entries |",
        "| training | 1,500 steps, 1:02:05, ended: early stop |",
        "| validation loss | 1.2346 per token (cross_entropy, smoothing 0.2) |",
        f"| made by | clearhead {VERSION}: `clearhead train training_config.toml` |",
    ):
        assert row in card.split("\n")
    assert "licence of the data" in card


def test_every_row_of_the_table_has_two_cells() -> None:
    card, _ = card_for("numbers")
    rows = [line for line in card.split("\n") if line.startswith("|")]
    assert len(rows) == 10
    assert all(row.count("|") == 3 for row in rows)


def test_a_trained_model_has_its_card_and_its_config(trained: Path) -> None:
    assert "# Translator" in (trained / "model" / "README.md").read_text(encoding="utf-8")
    config = tomllib.loads((trained / "model" / "training_config.toml").read_text(encoding="utf-8"))
    assert config["train"]["steps"] == 120


def test_the_licence_of_a_named_set_is_on_the_card() -> None:
    assert "| licence of the data | CC BY 2.0 (France), attribution: tatoeba.org |" in card_for("parts")[0]
    assert "| licence of the data | not recorded: fill this in before you share it |" in card_for("tsv")[0]


def test_a_section_is_appended_once_and_then_replaced() -> None:
    card = with_section(with_section("# A\n\ntext\n", "Scores", "one"), "Examples", "two")
    assert card == "# A\n\ntext\n\n## Scores\n\none\n\n## Examples\n\ntwo\n"
    assert with_section(card, "Scores", "three") == card.replace("one", "three")


def test_a_model_that_was_made_from_another_has_its_own_size_and_claims_no_score_of_the_other() -> None:
    card, _ = card_for("files")
    smaller = Translator(resolve({"data": DATA["files"], "model": {**SHAPE, "ff_dim": 4}, "train": {"steps": 1}}).model)
    found = altered_card(with_section(card, "Scores", "BLEU 99"), smaller, "Pruned heads: encoder.0.0.")
    assert f"| parameters | {sum(p.numel() for p in smaller.parameters()):,} |" in found
    assert "| validation loss of the model it was made from | 1.2346 per token" in found
    assert found.endswith("\nScores above are of the model it was made from. Pruned heads: encoder.0.0.\n")
    assert altered_card("mine", smaller, "Pruned heads: none.") == "mine\nPruned heads: none.\n"
