"""From two text files to a translator in use: every verb, in the order a newcomer meets them."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Clearhead = Callable[..., Any]


def test_training_leaves_a_run_directory_and_says_how_to_go_on(files_run: Path) -> None:
    assert {"config.toml", "metrics.jsonl", "train.log", "samples.txt", "loss.png", "checkpoints", "model"} <= {
        path.name for path in files_run.iterdir()
    }
    config = tomllib.loads((files_run / "config.toml").read_text(encoding="utf-8"))
    assert config["train"]["steps"] == 6 and config["model"]["dim"] == 16
    assert (files_run / "model" / "README.md").read_text(encoding="utf-8").startswith("---\n")


def test_a_dry_run_says_what_would_happen_and_writes_nothing(
    clearhead: Clearhead, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    files = ("--source", corpus / "train.de", "--target", corpus / "train.en")
    said = clearhead("train", "translator", *files, "--out", out, "--dry-run", "--set", "model.dim=32")
    assert said.code == 0 and said.out == "" and not out.exists()
    assert "chosen for this data" in said.err and "because" in said.err
    assert "model.dim" not in said.err and "model.ff_dim" in said.err
    assert re.search(r"300 pairs, 300 kept .*285 pairs to train on, 15 to validate on", said.err, re.DOTALL)
    assert re.search(
        r"model: .* M parameters; about .* MiB of memory; .* steps of .* s, so about \d:\d\d:\d\d", said.err
    )


def test_training_tells_its_story_in_plain_lines(clearhead: Clearhead, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "a run"
    words = ("train", "--tsv", corpus / "test.tsv", "--out", out, "--set", "train.steps=2", "--set", "model.dim=8")
    said = clearhead(*words, "--set", "train.log_every=1")
    assert said.code == 0 and said.out == "" and "\x1b" not in said.err
    lines = said.err.splitlines()
    assert any(
        re.match(r"step 2/2  loss \S+  ppl \S+  lr \S+  gnorm \S+  \S+ tok/s  eta 0:00:00$", line) for line in lines
    )
    assert any(line.startswith("validation at step 2: loss") for line in lines)
    assert {line.split()[0] for line in lines if line.startswith("  ")} >= {"source", "reference", "hypothesis"}
    assert lines[-1] == f"the model is in {out}/model; try it: clearhead translate --model '{out}' \"…\""


@pytest.mark.parametrize("where", ["", "model", "checkpoints/best", "checkpoints/step-3"])
def test_info_describes_runs_models_and_checkpoints(clearhead: Clearhead, files_run: Path, where: str) -> None:
    facts = json.loads(clearhead("info", files_run / where, "--json").out)
    assert (facts["kind"], facts["dim"], facts["tokenizer"]) == ("translator", 16, "bpe")
    assert facts["data_source"].endswith("train.de")
    assert facts["parameters"] > 16 * 300 and facts["weights_bytes"] > 4 * facts["parameters"]
    said = clearhead("info", files_run / where)
    assert said.code == 0 and said.err == ""
    assert f"{facts['parameters']:,}" in said.out
    assert ("step" in facts) == (where != "model")


def test_translate_takes_arguments(clearhead: Clearhead, files_run: Path) -> None:
    said = clearhead("translate", "--model", files_run, "einhundert", "", "zwei\ndrei", "--", "--beam")
    assert said.code == 0 and said.err == ""
    assert len(said.lines) == 4 and said.lines[1] == "" and said.lines[0] != ""


@pytest.mark.parametrize(
    "text",
    [
        b"einhundert\n\n  \nzweihundert\n",
        b"einhundert\r\n\r\n  \r\nzweihundert\r\n",
        b"einhundert\n\n  \nzweihundert",
        b"\xef\xbb\xbfeinhundert\n\n\t\nzweihundert\n",
        gzip.compress(b"einhundert\n\n  \nzweihundert\n", mtime=0),
    ],
    ids=["plain", "crlf", "no newline at the end", "byte order mark", "gzip"],
)
def test_one_line_in_is_one_line_out(clearhead: Clearhead, files_run: Path, tmp_path: Path, text: bytes) -> None:
    expected = clearhead("translate", "-m", files_run, "einhundert", "", "", "zweihundert").lines
    path = tmp_path / "input"
    path.write_bytes(text)
    assert clearhead("translate", "-m", files_run, stdin=text).lines == expected
    assert clearhead("translate", "-m", files_run, "--input", path).lines == expected


def test_nothing_in_is_nothing_out(clearhead: Clearhead, files_run: Path) -> None:
    said = clearhead("translate", "-m", files_run, stdin=b"")
    assert (said.code, said.out, said.err) == (0, "", "")


def test_json_is_one_object_a_line_with_its_source(clearhead: Clearhead, files_run: Path) -> None:
    sources = ["einhundert", "", "a\u2028b\x85c", 'sagte "ja"']
    said = clearhead("translate", "-m", files_run, "--json", "--nbest", 2, stdin="\n".join(sources).encode())
    assert len(said.out.splitlines()) == len(said.lines)
    rows = [json.loads(line) for line in said.lines]
    assert [row["source"] for row in rows] == sources
    assert rows[1]["translation"] == "" and "alternatives" not in rows[1]
    for row in (rows[0], rows[2], rows[3]):
        assert row["score"] >= row["alternatives"][0]["score"] and isinstance(row["finished"], bool)


def test_n_best_comes_with_scores_best_first(clearhead: Clearhead, files_run: Path) -> None:
    said = clearhead("translate", "-m", files_run, "--nbest", 3, "--scores", "einhundert", "")
    rows = [line.split("\t") for line in said.lines]
    scores = [float(score) for score, _ in rows[:3]]
    assert scores == sorted(scores, reverse=True) and len({text for _, text in rows[:3]}) == 3
    assert [text for _, text in rows[3:]] == ["", "", ""]


@pytest.mark.parametrize("nbest", [2, 7])
def test_the_beam_grows_with_the_results_asked_for(
    clearhead: Clearhead, files_run: Path, numbers_run: Path, nbest: int
) -> None:
    for model in (files_run, numbers_run):  # The second is greedy of its own accord.
        said = clearhead("translate", "-m", model, "--nbest", nbest, "--max-len", 5, "einhundert")
        assert said.code == 0 and len(said.lines) == nbest


def test_a_beam_of_one_is_greedy_and_sampling_repeats_with_its_seed(clearhead: Clearhead, files_run: Path) -> None:
    greedy = clearhead("translate", "-m", files_run, "--beam", 1, "--scores", "einhundert").lines
    assert (
        greedy
        == clearhead("translate", "-m", files_run, "--sample", "--temperature", 0, "--scores", "einhundert").lines
    )
    draws = [
        clearhead("translate", "-m", files_run, "--sample", "--seed", seed, "--max-len", 8, "einhundert").out
        for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]


def test_score_takes_files_a_table_or_hypotheses(
    clearhead: Clearhead, files_run: Path, corpus: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "hypotheses.txt"
    files = ("--source", corpus / "test.de", "--target", corpus / "test.en")
    by_files = clearhead("score", "-m", files_run, *files, "--json", "--save", saved)
    assert by_files.code == 0 and by_files.err == ""
    scores = json.loads(by_files.out)
    assert scores["count"] == 20 and 0 <= scores["bleu"] <= 100 and "tok:13a" in scores["bleu_signature"]
    assert clearhead("score", "-m", files_run, "--tsv", corpus / "test.tsv", "--json").out == by_files.out
    assert clearhead("score", "--hypotheses", saved, "--target", corpus / "test.en", "--json").out == by_files.out
    assert len(saved.read_bytes().splitlines()) == 20


def test_scores_are_shown_with_their_interval_and_signature(clearhead: Clearhead, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.write_text("one apple and two more pears\n" * 5, encoding="utf-8")
    said = clearhead("score", "--hypotheses", texts, "--target", texts, "--limit", 3)
    bleu, chrf, exact = said.lines
    assert re.match(r"BLEU +100\.00  95 % interval 100\.00 to 100\.00  nrefs:1\|", bleu)
    assert re.match(r"chrF +100\.00  95 % interval 100\.00 to 100\.00  nrefs:1\|", chrf)
    assert re.fullmatch(r"exact match +100\.00 % of 3", exact)


def test_a_few_poor_translations_can_be_scored(clearhead: Clearhead, tmp_path: Path) -> None:
    for name, text in (("hypotheses", "a b\nx\n?\n"), ("references", "a c\nyy\n!\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    said = clearhead("score", "--hypotheses", tmp_path / "hypotheses", "--target", tmp_path / "references")
    assert said.code == 0


def test_a_gate_closes_below_the_score_asked_for(clearhead: Clearhead, tmp_path: Path) -> None:
    for name, text in (("right", "one apple and two more pears\n"), ("wrong", "one apple and three more trees\n")):
        (tmp_path / name).write_text(text * 5, encoding="utf-8")
    gate = ("--target", tmp_path / "right", "--min-bleu", 90)
    assert clearhead("score", "--hypotheses", tmp_path / "right", *gate).code == 0
    said = clearhead("score", "--hypotheses", tmp_path / "wrong", *gate)
    assert said.code == 1 and said.out.startswith("BLEU")
    assert re.fullmatch(r"clearhead: BLEU \d+\.\d\d is below 90\n", said.err)


def test_averaged_checkpoints_make_a_model(clearhead: Clearhead, files_run: Path, tmp_path: Path) -> None:
    said = clearhead("average", files_run, "--last", 2, "--out", tmp_path / "mean")
    assert said.code == 0 and said.err == f"the mean of step-3, step-6 is in {tmp_path}/mean\n"
    assert clearhead("translate", "-m", tmp_path / "mean", "einhundert").code == 0
    assert "step-3" in (tmp_path / "mean" / "README.md").read_text(encoding="utf-8")


def test_a_run_goes_on_by_its_directory_or_by_the_words_that_began_it(
    clearhead: Clearhead, files_run: Path, corpus: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(files_run, run, symlinks=True)
    said = clearhead("train", run, "--resume", "--set", "train.steps=8")
    assert said.code == 0 and "resuming at step 6: 8 steps" in said.err
    assert json.loads(clearhead("info", run, "--json").out)["step"] == 8
    files = ("--source", corpus / "train.de", "--target", corpus / "train.en")
    said = clearhead("train", "translator", *files, "--out", run, "--resume", "--set", "train.steps=9")
    assert said.code == 0 and "resuming at step 8: 9 steps" in said.err
    said = clearhead("train", "--out", run, "--resume")
    assert said.code == 0 and "there was nothing left to do: to train longer, raise train.steps" in said.err


def test_chinese_goes_in_and_valid_text_comes_out(clearhead: Clearhead, numbers_run: Path) -> None:
    said = clearhead("translate", "-m", numbers_run, "二十三", stdin=b"")
    assert said.code == 0 and len(said.lines) == 1
    assert clearhead("translate", "-m", numbers_run, stdin="二十三\n一百\n".encode()).lines[0] == said.lines[0]
    samples = (numbers_run / "samples.txt").read_text(encoding="utf-8")
    assert re.search("  source      [一二三四五六七八九十百零]+\n", samples)


def test_the_other_way_round_is_scored_by_characters(clearhead: Clearhead, tmp_path: Path) -> None:
    out = tmp_path / "en-zh"
    settings = (
        "data.source_language=en", "data.target_language=zh", "data.largest=300", "data.train_size=50",
        "data.validation_size=5", "data.test_size=5", "model.dim=8", "model.ff_dim=8", "train.steps=1",
        "generation.max_len=8",
    )  # fmt: skip
    words = [word for setting in settings for word in ("--set", setting)]
    assert clearhead("train", "numbers", "--out", out, *words).code == 0
    scores = json.loads(clearhead("score", "-m", out, "--split", "test", "--json").out)
    assert scores["count"] == 5 and "tok:zh" in scores["bleu_signature"]


def test_parts_are_scored_together_and_each_by_itself(clearhead: Clearhead, joint_run: Path) -> None:
    both = json.loads(clearhead("score", "-m", joint_run, "--split", "test", "--json").out)
    assert both["count"] == both["parts"]["de"]["count"] + both["parts"]["zh"]["count"]
    alone = json.loads(clearhead("score", "-m", joint_run, "--split", "test", "--part", "zh", "--json").out)
    assert alone == both["parts"]["zh"]
    said = clearhead("score", "-m", joint_run, "--split", "test")
    assert said.code == 0 and re.search(r"\nde\nBLEU .*\n\nzh\nBLEU", said.out, re.DOTALL)


def test_two_models_are_compared_on_the_same_texts(clearhead: Clearhead, joint_run: Path, tmp_path: Path) -> None:
    words = ("score", "-m", joint_run, "--split", "test", "--part", "de", "--save", tmp_path / "ours.txt", "--json")
    itself = json.loads(clearhead(*words, "--against", joint_run / "model").out)["against"]
    assert [(one["metric"], one["difference"], one["p_value"]) for one in itself] == [
        ("BLEU", 0.0, 1.0),
        ("chrF", 0.0, 1.0),
    ]
    assert json.loads(clearhead(*words, "--against", tmp_path / "ours.txt").out)["against"] == itself
    said = clearhead(*words[:-1], "--against", tmp_path / "ours.txt")
    assert re.search(r"\nagainst the other\nBLEU +\+0\.00 \(the other \d+\.\d\d\), p = 1\.0000 ", said.out)


def test_a_packed_model_is_the_default_model(
    clearhead: Clearhead, numbers_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = clearhead("pack", numbers_run, "--out", tmp_path / "small")
    assert said.code == 0 and said.out == ""
    assert re.fullmatch(rf"{tmp_path}/small: 0\.\d MB, weights in float16\n", said.err)
    assert "float16" in clearhead("info", tmp_path / "small").out
    monkeypatch.setenv("CLEARHEAD_MODEL", str(tmp_path / "small"))
    assert clearhead("translate", "二十三").out == clearhead("translate", "-m", tmp_path / "small", "二十三").out


def test_settings_are_listed_with_their_meaning_and_as_they_stand(clearhead: Clearhead) -> None:
    said = clearhead("train", "--settings")
    assert said.code == 0
    assert "train.lr = 0.001" in said.out and "# The peak learning rate" in said.out
    assert re.search("^# train.steps = +# Optimizer steps", said.out, re.MULTILINE)
    recipe = tomllib.loads(clearhead("train", "numbers", "--settings", "--set", "train.lr=5e-4").out)
    assert recipe["data"]["kind"] == "numbers" and recipe["train"]["lr"] == 5e-4
    parts = tomllib.loads(clearhead("train", "tatoeba-de-zh-en", "--settings").out)["data"]["parts"]
    assert [(part["tsv"], part["repeat"]) for part in parts] == [("deu.txt", 1), ("cmn.hans.txt", 2)]


def test_settings_for_data_files_are_those_that_are_chosen(clearhead: Clearhead, tmp_path: Path) -> None:
    for side, word in (("zh", "我吃了一个苹果"), ("en", "I ate an apple")):
        (tmp_path / f"a.{side}").write_text("".join(f"{word} {i}\n" for i in range(40)), encoding="utf-8")
    files = ("--source", tmp_path / "a.zh", "--target", tmp_path / "a.en", "--out", tmp_path / "run")
    said = clearhead("train", "translator", *files, "--set", "model.dim=64", "--settings")
    found = tomllib.loads(said.out)
    assert found["out"] == str(tmp_path / "run") and found["data"]["source"] == str(tmp_path / "a.zh")
    assert found["model"]["dim"] == 64 and found["train"]["epochs"] > 1
    assert not (tmp_path / "run").exists()
    bare = clearhead("train", "translator", "--set", "model.dim=64", "--settings")
    assert bare.code == 2 and "name the data too: --source FILE" in bare.err
