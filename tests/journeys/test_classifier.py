"""From labelled texts to a classifier that is used, scored, inspected and shipped, all by commands."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.journeys.conftest import Clearhead, assignments, make, weighed
from tests.journeys.made_up_reviews import FORMS, LABELS, as_tsv, reviews

import clearhead as library
from clearhead.training.logbook import read_metrics

SMALL = (
    "tokenizer.vocab_size=340", "batches.max_tokens=1024", "model.dim=32", "model.ff_dim=32", "model.num_heads=2",
    "model.num_layers=1", "model.max_len=64", "train.log_every=5", "train.warmup=10", "train.lr=0.01",
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reviews")
    as_tsv(folder / "train.tsv", reviews(400, 1))
    as_tsv(folder / "test.tsv", reviews(90, 2))
    return folder


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; not to be changed."""
    out = tmp_path_factory.mktemp("runs") / "reviews"
    steps = ("train.epochs=10.0", "train.validate_every=40", f"data.test={data / 'test.tsv'}")
    cache = tmp_path_factory.getbasetemp() / "cache"
    make(cache, "train", "classifier", "--tsv", data / "train.tsv", "--out", out, *assignments(*SMALL, *steps))
    return out


@pytest.fixture
def texts(data: Path) -> list[str]:
    rows = (data / "test.tsv").read_text(encoding="utf-8").split("\n")[1:-1]
    return [row.split("\t")[2] for row in rows]


def test_it_learns_and_validation_shows_its_accuracy(trained: Path) -> None:
    validated = [row for row in read_metrics(trained / "metrics.jsonl") if row["event"] == "validated"]
    assert validated[-1]["accuracy"] > 0.9
    log = (trained / "train.log").read_text()
    assert "texts/s" in log and "ppl" not in log
    assert "\n  label  " in (trained / "samples.txt").read_text()
    card = (trained / "model" / "README.md").read_text()
    assert "pipeline_tag: text-classification" in card and "bad, good, so-so" in card and "380 texts" in card
    assert json.loads((trained / "model" / "config.json").read_text())["labels"] == list(LABELS)


def test_one_line_in_is_one_label_out_and_empty_lines_stay(
    clearhead: Clearhead, trained: Path, texts: list[str]
) -> None:
    given = [texts[0], "", texts[1], "  "]
    said = clearhead("classify", "--model", trained, stdin="".join(f"{text}\n" for text in given).encode())
    assert said.code == 0 and len(said.lines) == 4
    assert said.lines[0] in LABELS and said.lines[2] in LABELS
    assert said.lines[1] == said.lines[3] == ""


def test_arguments_files_and_packed_files_give_the_same(
    clearhead: Clearhead, trained: Path, texts: list[str], tmp_path: Path
) -> None:
    lines = "".join(f"{text}\n" for text in texts[:20]).encode()
    (tmp_path / "a.txt").write_bytes(lines)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(lines))
    answers = [
        clearhead("classify", "--model", trained, *texts[:20]),
        clearhead("classify", "--model", trained, "--input", tmp_path / "a.txt"),
        clearhead("classify", "--model", trained, "-i", tmp_path / "a.txt.gz"),
        clearhead("classify", "--model", trained, stdin=lines),
    ]
    assert len({tuple(said.lines) for said in answers}) == 1 and len(answers[0].lines) == 20


def test_json_has_probabilities_and_what_was_read(clearhead: Clearhead, trained: Path) -> None:
    long = "the film was great. " * 40
    said = clearhead("classify", "--model", trained, "--json", "the film was dull", long, "")
    rows = [json.loads(line) for line in said.lines]
    assert rows[0]["probabilities"].keys() == set(LABELS)
    assert sum(rows[0]["probabilities"].values()) == pytest.approx(1, abs=1e-4)
    assert rows[0]["label"] == max(rows[0]["probabilities"], key=rows[0]["probabilities"].get)
    assert rows[0]["read"] == rows[0]["tokens"] and rows[1]["read"] == 62 < rows[1]["tokens"]
    assert rows[2] == {"text": "", "label": None, "probability": 0.0, "probabilities": {}, "tokens": 0, "read": 0}
    assert "1 of 3 texts have more than 62 tokens: their first 16 and last 46 are read" in said.err


def test_probabilities_may_stand_behind_the_label(clearhead: Clearhead, trained: Path) -> None:
    line = clearhead("classify", "--model", trained, "--probabilities", "the film was dull").lines[0]
    label, *shares = line.split("\t")
    assert shares[0].startswith(f"{label} 0.") and len(shares) == 3


def test_the_library_says_the_same(clearhead: Clearhead, trained: Path, texts: list[str]) -> None:
    loaded = library.load(trained)
    assert loaded.classify(texts[:9]) == clearhead("classify", "--model", trained, *texts[:9]).lines
    assert loaded.classify(texts[0]) == loaded.classify(texts[:1])[0]
    assert set(loaded.probabilities(texts[0])) == set(LABELS)
    # In any company a text is the same.
    alone = [loaded.probabilities(text) for text in texts[:9]]
    together = loaded.probabilities(texts)[:9]
    for one, other in zip(alone, together, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


def test_scores_stand_beside_a_linear_baseline(clearhead: Clearhead, trained: Path, tmp_path: Path) -> None:
    picture, answers = tmp_path / "confusion.png", tmp_path / "answers.txt"
    said = clearhead("score", "--model", trained, "--split", "test", "--png", picture, "--save", answers)
    assert said.code == 0
    names = [line.split("  ")[0].strip() for line in said.lines]
    assert names[:5] == ["accuracy", "macro F1", "calibration", "baseline", "difference"]
    assert said.lines[6].split() == ["true", "label", *LABELS, "recall", "precision", "F1", "texts"]
    assert picture.read_bytes().startswith(b"\x89PNG") and len(answers.read_text().splitlines()) == 90
    tree = json.loads(clearhead("score", "--model", trained, "--split", "test", "--json").out)
    assert tree["count"] == 90 and tree["accuracy"] > 0.85 and tree["baseline"]["accuracy"] > 0.85
    assert 0 <= tree["baseline"]["p_value"] <= 1
    assert sum(map(sum, tree["confusion"])) == 90


@pytest.mark.parametrize("form", FORMS)
def test_any_form_of_data_is_scored_alike(clearhead: Clearhead, trained: Path, form: str, tmp_path: Path) -> None:
    file = FORMS[form](tmp_path / f"data.{form}", reviews(60, 3))
    said = clearhead("score", "--model", trained, f"--{form}", file, "--json", "--no-baseline")
    assert said.code == 0
    tree = json.loads(said.out)
    assert tree["count"] == 60 and "baseline" not in tree
    wanted = as_tsv(tmp_path / "same.tsv", reviews(60, 3))
    same = json.loads(clearhead("score", "--model", trained, "--tsv", wanted, "--json", "--no-baseline").out)
    assert tree["confusion"] == same["confusion"]


def test_heads_are_weighed_by_loss_and_accuracy(
    clearhead: Clearhead, trained: Path, data: Path, tmp_path: Path
) -> None:
    whole, count = weighed(clearhead, tmp_path / "worth.tsv", trained, "--split", "test")
    scored = json.loads(clearhead("score", "--model", trained, "--split", "test", "--json", "--no-baseline").out)
    config = json.loads((trained / "model" / "config.json").read_text())
    assert count == config["num_layers"] * config["num_heads"]
    assert whole["accuracy"] == pytest.approx(100 * scored["accuracy"])
    same, _ = weighed(clearhead, tmp_path / "file.tsv", trained, "--on", data / "test.tsv")
    assert same == pytest.approx(whole)


def test_held_out_texts_are_found_again_and_a_gate_can_fail(clearhead: Clearhead, trained: Path) -> None:
    said = clearhead("score", "--model", trained, "--split", "validation", "--json", "--no-baseline")
    assert json.loads(said.out)["count"] == 20
    assert clearhead("score", "--model", trained, "--split", "test", "--no-baseline", "--min-accuracy", 101).code == 1
    few = clearhead("score", "--model", trained, "--split", "test", "--no-baseline", "--limit", 9, "--json")
    assert json.loads(few.out)["count"] == 9


def test_two_runs_are_compared(clearhead: Clearhead, trained: Path) -> None:
    said = clearhead("score", "--model", trained, "--split", "test", "--against", trained, "--no-baseline", "--json")
    assert json.loads(said.out)["against"]["p_value"] == 1.0


def test_it_can_be_looked_into(clearhead: Clearhead, trained: Path, tmp_path: Path) -> None:
    page, picture, tree = tmp_path / "page.html", tmp_path / "heads.png", tmp_path / "view.json"
    files = ("--out", page, "--png", picture, "--json", tree)
    said = clearhead("inspect", trained, "the film was dull", *files)
    assert said.code == 0 and said.lines[0] in LABELS
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>") and picture.stat().st_size > 1000
    view = json.loads(tree.read_text())
    assert [block["kind"] for block in view["attention"]] == ["encoder"]
    assert view["tokens"]["source"][0]["text"] == "<s>" and view["texts"]["target"] == said.lines[0]
    known = library.load(trained)
    for text in ("the film\nwas dull", " the film\x07 was dull "):
        assert known.inspect(text).loss == pytest.approx(-math.log(max(known.probabilities(text).values())), abs=1e-5)
    off = clearhead("inspect", trained, "the film was dull", "--ablate", "encoder.0.self.1", "--target", "good")
    assert off.code == 0 and len(off.lines) == 2 and off.lines[1].startswith("without encoder.0.self.1\t")


def test_a_run_goes_on_where_it_was(clearhead: Clearhead, data: Path, tmp_path: Path) -> None:
    settings = assignments(*SMALL, "train.validate_every=3", "model.long_texts=windows", "data.drop_tokens=0.2")
    files = ("train", "classifier", "--tsv", data / "train.tsv")
    assert clearhead(*files, "--out", tmp_path / "whole", *settings, "--set", "train.steps=6").code == 0
    assert clearhead(*files, "--out", tmp_path / "parts", *settings, "--set", "train.steps=3").code == 0
    assert clearhead("train", tmp_path / "parts", "--resume", "--set", "train.steps=6").code == 0
    assert (tmp_path / "parts" / "checkpoints" / "step-6").is_dir()


def test_a_dry_run_shows_what_it_would_choose(clearhead: Clearhead, data: Path, tmp_path: Path) -> None:
    said = clearhead("train", "classifier", "--tsv", data / "train.tsv", "--out", tmp_path / "run", "--dry-run")
    assert said.code == 0 and not (tmp_path / "run").exists()
    for words in ("model.max_len", "labels: bad 134, good 133, so-so 133", "to validate on"):
        assert words in said.err


def test_a_test_set_can_be_held_out(clearhead: Clearhead, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = assignments(*SMALL, "train.steps=2", "data.hold_out_test=40")
    said = clearhead("train", "classifier", "--tsv", data / "train.tsv", "--out", out, *settings)
    assert said.code == 0 and "40 to test on" in said.err
    assert json.loads(clearhead("score", "--model", out, "--split", "test", "--json").out)["count"] == 40


@pytest.fixture
def mistake(clearhead: Clearhead, tmp_path: Path) -> Iterator[Any]:
    def train(text: str, *words: object, name: str = "a.tsv", flag: str = "--tsv") -> tuple[int, str]:
        (tmp_path / name).write_text(text, encoding="utf-8")
        settings = assignments(*SMALL, "train.steps=1", "data.hold_out=2")
        said = clearhead("train", "classifier", flag, tmp_path / name, "--out", tmp_path / "run", *settings, *words)
        assert said.out == "" and "Traceback" not in said.err
        return said.code, said.err.strip().split("\n")[-1]

    return train


GOOD = "text\tlabel\n" + "".join(f"word {number}\t{'ab'[number % 2]}\n" for number in range(12))


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("text\tlabel\none\tpos\ntwo\tpos\nthree\tpos\n", 65, "all 3 texts have the label 'pos'"),
        ("text\tlabel\n\tpos\n\tneg\n", 65, "no usable text in "),
        ("words\tmood\none\tpos\n", 65, "a.tsv has no column 'text': its first line names words, mood"),
        ("text\tlabel\n" + "".join(f"w {n}\t{n}\n" for n in range(9)), 65, "9 different labels in 9 texts"),
        ("", 65, "a.tsv is empty"),
    ],
)
def test_data_that_cannot_be_learnt_from_is_refused_in_one_line(mistake: Any, text: str, code: int, said: str) -> None:
    found = mistake(text)
    assert found[0] == code and said in found[1]


def test_a_class_that_was_never_trained_is_refused(
    mistake: Any, clearhead: Clearhead, trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "other.tsv").write_text("text\tlabel\none\ta\ntwo\tnew\n", encoding="utf-8")
    code, said = mistake(GOOD, "--validation-tsv", tmp_path / "other.tsv")
    assert code == 65 and "other.tsv line 3: nothing was trained on the label 'new'; the labels are: a, b" in said
    found = clearhead("score", "--model", trained, "--tsv", tmp_path / "other.tsv")
    assert found.code == 65 and "other.tsv line 2: nothing was trained on the label 'a'" in found.err


def test_broken_json_is_told_with_its_line(mistake: Any) -> None:
    code, said = mistake('{"text": "a", "label": "x"}\n{"text": \n', name="a.jsonl", flag="--jsonl")
    assert code == 65 and "a.jsonl line 2 is not JSON" in said


def test_a_model_of_another_kind_is_met_with_its_own_command(
    clearhead: Clearhead, trained: Path, files_run: Path
) -> None:
    said = clearhead("classify", "--model", files_run, "drei")
    assert said.code == 2 and said.err == f"clearhead: {files_run} is a translator: use clearhead translate\n"
    said = clearhead("translate", "--model", trained, "drei")
    assert said.code == 2 and said.err == f"clearhead: {trained} is a classifier: use clearhead classify\n"


def test_flags_that_make_no_sense_are_refused(clearhead: Clearhead, trained: Path, files_run: Path) -> None:
    for words, said in (
        (("classify", "x"), "say which model is to classify: --model runs/NAME"),
        (("classify", "--model", trained, "x", "--input", "y"), "give texts or --input, not both"),
        (("score", "--model", trained), "say what to score on: --tsv FILE"),
        (("score", "--model", trained, "--split", "test", "--beam", 3), "leave out --beam"),
        (("score", "--model", files_run, "--csv", "x"), "--csv is for classifiers"),
        (("train", "classifier"), "say what to train on: --tsv FILE"),
        (("train", "classifier", "--source", "x"), "a classifier is not trained on --source"),
        (("train", "classifier", "--tsv", "x", "--validation-csv", "y"), "all of one kind, not tsv and csv"),
        (("train", "classifier", "--csv", "x", "--jsonl", "y"), "all of one kind, not csv and jsonl"),
        (("inspect", trained, "x", "--target", "nobody"), "unknown label 'nobody'"),
        (("inspect", trained, "x", "--beam", 2), "--beam is about translating"),
    ):
        found = clearhead(*words)
        assert found.code in (2, 78) and said in found.err, words


def test_it_is_packed_pruned_and_averaged_like_any_other(
    clearhead: Clearhead, trained: Path, texts: list[str], tmp_path: Path
) -> None:
    answers = clearhead("classify", "--model", trained, *texts[:30]).lines
    assert clearhead("pack", trained, "--out", tmp_path / "half").code == 0
    half = clearhead("classify", "--model", tmp_path / "half", *texts[:30]).lines
    assert sum(one == other for one, other in zip(half, answers, strict=True)) >= 28
    off = ("encoder.0.self.1",)
    assert clearhead("inspect", trained, "--prune", *off, "--out", tmp_path / "pruned").code == 0
    pruned = library.load(tmp_path / "pruned")
    assert pruned.inspect(texts[0]).loss == pytest.approx(library.load(trained).inspect(texts[0], ablate=off).loss)
    assert clearhead("average", trained, "--last", 2, "--out", tmp_path / "mean").code == 0


@pytest.mark.parametrize("kind", ["classifier", "bert"])
def test_all_settings_can_be_listed(clearhead: Clearhead, kind: str) -> None:
    said = clearhead("train", kind, "--settings")
    assert said.code == 0
    assert (
        f'model.kind = "{kind}"' in said.out
        and "data.train =" in said.out
        and "tokenizer.lowercase = false" in said.out
    )


def test_info_says_what_it_is(clearhead: Clearhead, trained: Path) -> None:
    facts = json.loads(clearhead("info", trained, "--json").out)
    assert facts["kind"] == "classifier" and facts["labels"] == list(LABELS) and facts["pooling"] == "mean"
    assert "labels" in clearhead("info", trained).out
