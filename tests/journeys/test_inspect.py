"""Looking into a model from the command line: files, heads off, heads weighed, heads gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Clearhead = Callable[..., Any]


def test_a_look_says_the_translation_and_writes_what_is_asked(
    clearhead: Clearhead, numbers_run: Path, tmp_path: Path
) -> None:
    endings = {"--out": "html", "--json": "json", "--png": "png", "--svg": "svg", "--tensors": "safetensors"}
    files = {flag: tmp_path / f"x.{ending}" for flag, ending in endings.items()}
    words = [word for flag, path in files.items() for word in (flag, path)]
    said = clearhead("inspect", numbers_run, "二十三", *words, "--beam", 2, "--head", "cross.0")
    assert said.code == 0, said.err
    view = json.loads(files["--json"].read_text())
    assert said.lines == [" ".join(view["texts"]["target"].splitlines())]
    assert view["languages"] == {"source": "zh", "target": "en"}
    assert [f"wrote {path}" in said.err for path in files.values()] == [True] * 5
    assert f"wrote {files['--out']}; open it in a browser: {files['--out'].as_uri()}\n" in said.err
    assert all(path.stat().st_size > 500 for path in files.values())


def test_without_a_file_there_is_a_table(clearhead: Clearhead, files_run: Path) -> None:
    said = clearhead("inspect", files_run, "vierhundert")
    assert said.code == 0 and len(said.lines) == 1
    assert "heads with a clear habit" in said.err and "--out page.html" in said.err


def test_without_a_model_the_one_in_the_box_is_looked_into(
    clearhead: Clearhead, files_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEARHEAD_MODEL", str(files_run))
    for text in ("vierhundert", "vier " * 60, "a//b/", "./x"):
        said = clearhead("inspect", text, "--json", tmp_path / "x.json", "--beam", 1)
        assert said.code == 0, said.err
        assert said.err.startswith(f"no model named, so this is {files_run}\n")
        assert json.loads((tmp_path / "x.json").read_text())["texts"]["source"] == text
    said = clearhead("inspect", "vierhundert")
    assert "inspect vierhundert --out page.html\n" in said.err
    monkeypatch.delenv("CLEARHEAD_MODEL")
    monkeypatch.setattr("clearhead.run.built_in.assets", lambda: tmp_path / "no assets")
    for words in (
        ["vierhundert"],
        ["--importance", "--split", "test"],
        ["--prune", "cross.0.1", "--out", tmp_path / "y"],
    ):
        said = clearhead("inspect", *words)
        assert said.code == 66 and said.err.count("\n") == 1
        assert said.err.startswith("clearhead: this copy of clearhead has no built-in model")


def test_a_text_of_two_lines_is_read_as_translate_reads_it(
    clearhead: Clearhead, files_run: Path, tmp_path: Path
) -> None:
    said = clearhead("inspect", files_run, "vierhundert\nzwei", "--json", tmp_path / "x.json")
    assert said.code == 0 and said.out == clearhead("inspect", files_run, "vierhundert zwei").out
    assert json.loads((tmp_path / "x.json").read_text())["texts"]["source"] == "vierhundert zwei"


def test_with_heads_off_both_translations_are_shown(clearhead: Clearhead, files_run: Path) -> None:
    said = clearhead("inspect", files_run, "eins", "--target", "one", "--ablate", "decoder.0.cross.1", "encoder.0")
    assert said.code == 0, said.err
    rows = [line.split("\t") for line in said.lines]
    assert [row[0] for row in rows] == ["whole", "without decoder.0.cross.1, encoder.0"]
    assert [row[2] for row in rows] == ["one", "one"] and rows[0][1] != rows[1][1]


def test_heads_are_weighed_and_the_work_is_kept(
    clearhead: Clearhead, files_run: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clearhead.run import weighing

    out = tmp_path / "worth.tsv"
    command = ("inspect", files_run, "--importance", "--on", corpus / "test.tsv", "--limit", 3, "--out", out)
    measure, calls = weighing.mean_loss, []

    def tired(*given: Any) -> float:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return measure(*given)

    monkeypatch.setattr(weighing, "mean_loss", tired)
    stopped = clearhead(*command)
    assert stopped.code == 130 and "the same command goes on from there" in stopped.err
    assert not out.exists() and (tmp_path / "worth.jsonl").exists()
    said = clearhead(*command)
    assert said.code == 0, said.err
    assert len(calls) == 4 + 4, "the whole model and two heads were there"
    assert len(said.lines) == 7 and said.lines[0].split() == ["without", "loss", "change", "BLEU", "change"]
    assert all((tmp_path / f"worth.{ending}").stat().st_size for ending in ("tsv", "json", "png"))
    again = clearhead(
        "inspect", files_run, "--importance", "--on", corpus / "test.de", corpus / "test.en", "--out", out
    )
    assert again.code == 73 and "another model or other data" in again.err
    assert clearhead(*command).code == 0, "the same command may write its results again"


def test_the_data_that_heads_are_weighed_on_are_not_overwritten(
    clearhead: Clearhead, files_run: Path, corpus: Path, tmp_path: Path
) -> None:
    dev = tmp_path / "dev.tsv"
    dev.write_bytes((corpus / "test.tsv").read_bytes())
    said = clearhead("inspect", files_run, "--importance", "--on", dev, "--limit", 3, "--out", dev)
    assert said.code == 73 and said.err.count("\n") == 1
    assert dev.read_bytes() == (corpus / "test.tsv").read_bytes() and list(tmp_path.iterdir()) == [dev]


def test_a_pruned_model_is_used_like_any_other(clearhead: Clearhead, files_run: Path, tmp_path: Path) -> None:
    said = clearhead(
        "inspect", files_run, "--prune", "decoder.0.cross.1", "encoder.0.self.0", "--out", tmp_path / "small"
    )
    assert said.code == 0 and said.out == "" and "the smaller model is in" in said.err
    assert len(clearhead("translate", "--model", tmp_path / "small", "eins").lines) == 1
    assert clearhead("inspect", tmp_path / "small", "eins", "--json", tmp_path / "x.json").code == 0
    heads = json.loads((tmp_path / "x.json").read_text())["heads"]
    assert [(head["kind"], head["head"]) for head in heads] == [
        ("encoder", 1), ("decoder", 0), ("decoder", 1), ("cross", 0),
    ]  # fmt: skip
    assert "dim" in clearhead("info", tmp_path / "small").out


WRONG = {
    "nothing": ("inspect", 2, 'say what to look at: clearhead inspect [MODEL] "a text"'),
    "nothing there": ("inspect nowhere x", 66, "there is no model at nowhere"),
    "no text": ("inspect {run}", 2, "say what to look at"),
    "mistyped and no text": ("inspect {run}/typo", 66, "/typo"),
    "empty text": ("inspect {run} {empty}", 65, "the text is empty"),
    "wrong ending": ("inspect {run} x --png x.jpg", 2, "--png writes a file that ends with .png, not x.jpg"),
    "wrong ending of a trail": (
        "inspect {run} x --reduce merge --r 2 --trail x.foo",
        2,
        "--trail writes a file that ends with .png or .svg or .pdf, not x.foo",
    ),
    "unknown head": ("inspect {run} x --ablate decoder.0.cros.1", 78, "did you mean 'decoder.0.cross.1'"),
    "unknown picture": ("inspect {run} x --png x.png --head cros", 78, "did you mean 'cross'"),
    "useless flag": ("inspect {run} x --on a.tsv", 2, "a text has no use for --on: leave it out"),
    "nothing to weigh on": ("inspect {run} --importance", 2, "say what to try heads on"),
    "weighing a text": ("inspect {run} x --importance", 2, "--importance has no use for a text"),
    "no table": ("inspect {run} --importance --on a.tsv --out x.png", 2, "--importance writes a table"),
    "nowhere to prune to": ("inspect {run} --prune cross.0.1", 2, "say where the smaller model goes"),
    "pruning on data": ("inspect {run} --prune cross.0.1 --out x --split test", 2, "--prune has no use for --split"),
    "pruning on some": ("inspect {run} --prune cross.0.1 --out x --limit 3", 2, "--prune has no use for --limit"),
    "pruning a beam": ("inspect {run} --prune cross.0.1 --out x --beam 3", 2, "--prune has no use for --beam"),
    "pruning a layer": ("inspect {run} --prune encoder.0 --out x", 78, "'encoder.0' is a whole layer"),
    "pruning everything": ("inspect {run} --prune cross --out x", 78, "decoder.0.cross would lose all its heads"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_one_line(
    clearhead: Clearhead, files_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.chdir(tmp_path)
    command, code, message = WRONG[case]
    words = [word.format(run=files_run, empty=" ") for word in command.split(" ")]
    said = clearhead(*words)
    assert (said.code, said.out) == (code, "")
    assert message in said.err and said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
