"""From documents to a BERT that fills gaps, is looked into, and lends its weights to a classifier, all by commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.journeys.conftest import Clearhead, assignments, make, weighed
from tests.journeys.made_up_reviews import as_tsv, reviews

import clearhead as library
from clearhead.cli.fill import _shown
from clearhead.engines.filling import Candidate, Filled
from clearhead.training.logbook import read_metrics

SMALL = (
    "tokenizer.kind=word", "batches.max_tokens=1024", "model.dim=32", "model.ff_dim=64", "model.num_heads=2",
    "model.num_layers=1", "model.max_len=40", "train.log_every=10", "train.warmup=10", "train.lr=0.01",
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of two sentences, in which adjectives agree: of a kind, a hidden one can be told from the others."""
    folder = tmp_path_factory.mktemp("documents")
    texts = [text.partition(" Number")[0] for text, _ in reviews(400, 1, ("good", "bad"))]
    lines = [f"{one} {texts[number - 1].capitalize()}\n" for number, one in enumerate(texts)]
    (folder / "documents.txt").write_text("".join(dict.fromkeys(lines)), encoding="utf-8")
    as_tsv(folder / "labelled.tsv", reviews(90, 5))
    return folder


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; not to be changed."""
    out = tmp_path_factory.mktemp("runs") / "bert"
    cache = tmp_path_factory.getbasetemp() / "cache"
    steps = ("train.steps=60", "train.validate_every=30", "data.asked=0.2")
    make(cache, "train", "bert", "--text", data / "documents.txt", "--out", out, *assignments(*SMALL, *steps))
    return out


def test_it_learns_what_is_hidden(trained: Path) -> None:
    validated = [row for row in read_metrics(trained / "metrics.jsonl") if row["event"] == "validated"]
    assert validated[-1]["accuracy"] > 0.4 and validated[-1]["loss"] < validated[0]["loss"]
    assert "[MASK]" in (trained / "samples.txt").read_text()
    assert "pipeline_tag: fill-mask" in (trained / "model" / "README.md").read_text()


def test_heads_are_weighed_by_loss_and_accuracy(
    clearhead: Clearhead, trained: Path, data: Path, tmp_path: Path
) -> None:
    whole, count = weighed(clearhead, tmp_path / "worth.tsv", trained, "--split", "validation")
    validated = [row for row in read_metrics(trained / "metrics.jsonl") if row["event"] == "validated"]
    best = min(validated, key=lambda row: row["loss"])
    assert count == 2 and whole["accuracy"] == pytest.approx(100 * best["accuracy"])
    few, _ = weighed(clearhead, tmp_path / "few.tsv", trained, "--on", data / "documents.txt", "--limit", 5)
    assert 0 <= few["accuracy"] <= 100
    said = clearhead("inspect", trained, "--importance", "--split", "test", "--out", tmp_path / "x.tsv")
    assert said.code == 78 and "names no test documents: use --on FILE" in said.err


def test_it_is_scored_by_what_it_guesses(clearhead: Clearhead, trained: Path, data: Path) -> None:
    validated = [row for row in read_metrics(trained / "metrics.jsonl") if row["event"] == "validated"]
    best = min(validated, key=lambda row: row["loss"])
    words = ("score", "--model", trained, "--split", "validation")
    tree = json.loads(clearhead(*words, "--json").out)
    assert tree["accuracy"] == pytest.approx(best["accuracy"]) and tree["next_sentence"]["count"] > 5
    said = clearhead(*words)
    assert said.code == 0 and [line.split("  ")[0] for line in said.lines] == [
        "accuracy",
        "perplexity",
        "next sentence",
    ]
    text = ("score", "--model", trained, "--text", data / "documents.txt", "--json")
    every, few = json.loads(clearhead(*text).out), json.loads(clearhead(*text, "--limit", 7).out)
    assert few["next_sentence"]["count"] == 7 < every["next_sentence"]["count"]
    gate = clearhead(*words, "--min-accuracy", 100.1)
    assert gate.code == 1 and "is below 100.1 %" in gate.err


def test_gaps_are_filled_with_likely_words(clearhead: Clearhead, trained: Path) -> None:
    said = clearhead("fill", "--model", trained, "the film [MASK] great, and the cast was fine.")
    assert said.code == 0 and len(said.lines) == 5
    probability, token, text = said.lines[0].split("\t")
    assert token == "was" and float(probability) > 0.3
    assert text == "the film was great, and the cast was fine."


def test_an_end_of_a_line_that_was_filled_in_ends_no_line() -> None:
    found = Filled("a\nb", [[Candidate("\n", 0.75, "a\nb"), Candidate(" c\u2028", 0.25, "a c\u2028b")]])
    assert list(_shown("a [MASK]b", found, best=True, as_json=False)) == ["a b"]
    assert list(_shown("a [MASK]b", found, best=False, as_json=False)) == ["0.7500\t'\\n'\ta b", "0.2500\tc\ta c b"]


def test_json_best_and_empty_lines(clearhead: Clearhead, trained: Path) -> None:
    lines = b"the [MASK] was [MASK].\n\nthe film [MASK] fine.\n"
    rows = [json.loads(line) for line in clearhead("fill", "--model", trained, "--json", "--top", 2, stdin=lines).lines]
    assert [len(row["gaps"]) for row in rows] == [2, 0, 1] and len(rows[0]["gaps"][1]) == 2
    best = clearhead("fill", "--model", trained, "--best", stdin=lines)
    assert best.lines == [row["filled"] for row in rows] and best.lines[1] == ""
    assert library.load(trained).fill("the film [MASK] fine.").text == best.lines[2]


def test_it_can_be_looked_into(clearhead: Clearhead, trained: Path, tmp_path: Path) -> None:
    tree, page = tmp_path / "view.json", tmp_path / "page.html"
    said = clearhead("inspect", trained, "the film [MASK] fine.", "--json", tree, "--out", page)
    assert said.code == 0
    view = json.loads(tree.read_text())
    assert "[MASK]" in [token["text"] for token in view["tokens"]["source"]]
    assert [block["kind"] for block in view["attention"]] == ["encoder"] and view["texts"]["target"] == said.lines[0]


@pytest.mark.parametrize("setting", ["data.pack=true", "model.next_sentence=false", "data.whole_words=true"])
def test_it_trains_and_goes_on_in_every_way(clearhead: Clearhead, data: Path, tmp_path: Path, setting: str) -> None:
    settings = assignments(*SMALL, setting, "train.steps=2", "tokenizer.kind=bpe", "tokenizer.vocab_size=300")
    said = clearhead("train", "bert", "--text", data / "documents.txt", "--out", tmp_path / "run", *settings)
    assert said.code == 0
    assert ("packed into" in said.err) == (setting == "data.pack=true")
    assert clearhead("train", tmp_path / "run", "--resume", "--set", "train.steps=4").code == 0


def test_its_tokens_become_fewer_in_training_and_in_use(
    clearhead: Clearhead, data: Path, trained: Path, tmp_path: Path
) -> None:
    learn = assignments(*SMALL, f"init={trained}", "model.reduce.kind=prune", "train.steps=2", "train.validate_every=2")
    said = clearhead("train", "bert", "--text", data / "documents.txt", "--out", tmp_path / "soft", *learn)
    assert said.code == 0 and "new: encoder.blocks.0.reduction.threshold" in said.err
    text, trail = "the film [MASK] great, and the cast was fine.", tmp_path / "trail.png"
    for how in (("merge", "--r", 2), ("prune", "--threshold", 1.0)):
        assert len(clearhead("fill", "--model", trained, text, "--reduce", *how).lines) == 5
        scored = clearhead("score", "--model", trained, "--split", "validation", "--json", "--reduce", *how)
        assert json.loads(scored.out)["count"] > 10
    assert clearhead("inspect", trained, text, "--reduce", "merge", "--r", 2, "--trail", trail).code == 0
    assert trail.stat().st_size > 500
    curve = ("--merge", 0, 2, "--split", "validation", "--rounds", 1, "--out", tmp_path / "curve.png")
    rows = [line.split("|") for line in clearhead("bench", "reduce", trained, *curve).lines if line.startswith("| ")]
    assert rows[1][2:4] == rows[2][2:4], "merging nothing changes no guess"
    assert float(rows[3][6]) == pytest.approx(float(rows[2][6]) - 2, abs=0.05)
    export = clearhead("export", tmp_path / "soft", "--to", "onnx", "--out", tmp_path / "onnx")
    assert export.code == 69 and "its tokens become fewer on the way (reduce.kind is 'prune')" in export.err
    packed = clearhead(
        "train", "bert", "--text", data / "documents.txt", "--out", tmp_path / "x", *learn, "--set", "data.pack=true"
    )
    assert packed.code == 78 and "several texts share a row" in packed.err.strip().splitlines()[-1]
    mixed = clearhead(
        *("train", "bert", "--text", data / "documents.txt", "--out", tmp_path / "y", "--set", "data.pack=true"),
        *("--set", "model.norm=group"),
    )
    assert mixed.code == 78 and "see each other through norm 'group'" in mixed.err.strip().splitlines()[-1]


def test_a_classifier_starts_from_its_weights(clearhead: Clearhead, data: Path, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = assignments(f"init={trained}", "train.steps=2", "train.layer_decay=0.8", "data.hold_out=10")
    said = clearhead("train", "classifier", "--tsv", data / "labelled.tsv", "--out", out, *settings)
    assert said.code == 0, said.err
    assert "tensors taken; new: output.weight, output.bias" in said.err
    config = json.loads((out / "model" / "config.json").read_text())
    assert config["dim"] == 32 and config["num_segments"] == 2 and config["max_len"] == 40
    assert clearhead("classify", "--model", out, "the film was fine").lines[0] in ("bad", "good", "so-so")


def test_what_follows_is_not_asked_where_documents_have_one_sentence(clearhead: Clearhead, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("".join(f"one {n}\n" for n in range(9)), encoding="utf-8")
    said = clearhead("train", "bert", "--text", tmp_path / "short.txt", "--out", tmp_path / "run", "--settings")
    assert "model.next_sentence = false" in said.out and said.code == 0


def test_mistakes_are_told_in_one_line(clearhead: Clearhead, data: Path, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("".join(f"one {n}\n" for n in range(9)), encoding="utf-8")
    run = ("--out", tmp_path / "run", *assignments(*SMALL, "train.steps=1"))
    for words, code, said in (
        (
            ("train", "bert", "--text", tmp_path / "short.txt", *run, "--set", "model.next_sentence=true"),
            65,
            "no document has two sentences, so none follows another: --set model.next_sentence=false",
        ),
        (("train", "bert", "--text", tmp_path / "none.txt", *run), 66, "there is no file"),
        (("train", "bert"), 2, "say what to train on: --text FILE, with a document a line"),
        (("fill", "--model", trained, "no gap"), 65, "text 1 has no gap to fill: write [MASK] where one is"),
        (("fill", "x [MASK]"), 2, "say which model is to fill"),
        (("score", "--model", trained), 2, "say what to score on: --text FILE, with a document a line"),
        (
            ("score", "--model", trained, "--split", "validation", "--beam", 2),
            2,
            "on documents, in torch: leave out --beam",
        ),
        (("score", "--model", trained, "--split", "test"), 78, "names no test documents: use --text FILE"),
        (("classify", "--model", trained, "x"), 2, f"{trained} is a bert: use clearhead fill"),
    ):
        found = clearhead(*words)
        assert found.code == code and said in found.err, found.err
        assert "Traceback" not in found.err
