"""Whatever lies in a directory, `info` says what it is or, in one line, what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.cli import run

OURS = {"format_version": 1, "kind": "translator"}


def put(folder: Path, name: str, tree: Any) -> None:
    (folder / name).write_text(tree if isinstance(tree, str) else json.dumps(tree), encoding="utf-8")


def test_a_model_of_somebody_else_is_not_taken_for_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, "config.json", {"model_type": "bert", "architectures": ["BertForMaskedLM"]})
    assert run(["info", str(tmp_path)]) == 66
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert "is not a model of Clearhead's: its config.json names no format_version" in said.err
    assert "clearhead import" in said.err


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": {**OURS, "reduce": "merge"}}, "config.json: 'reduce' is a value, not a section"),
        ({"config.json": OURS, "training_config.toml": "data = 3"}, "training_config.toml: 'data' is a value"),
        ({"export.json": {**OURS, "model": []}, "parity.json": {}}, "export.json: 'model' is a value"),
        ({"export.json": OURS, "parity.json": {"exported": 3}}, "parity.json: 'exported' is a value"),
    ],
)
def test_a_value_where_a_section_should_be_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: dict[str, Any], message: str
) -> None:
    for name, tree in files.items():
        put(tmp_path, name, tree)
    assert run(["info", str(tmp_path)]) == 74
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


@pytest.mark.parametrize("labels", [5, "neg", [1, 2]])
def test_values_of_another_kind_are_shown_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], labels: Any
) -> None:
    put(tmp_path, "config.json", {**OURS, "labels": labels})
    put(tmp_path, "training_config.toml", "data = {parts = [3, {tsv = 7}], kind = 1}")
    put(tmp_path, "state.json", {"step": 3, "best_loss": "low", "seconds": []})
    assert run(["info", str(tmp_path)]) == 0
    shown = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    assert (shown["best loss"].strip(), shown["data parts"].strip()) == ("low", "7")
    assert str(labels).strip("[]") in shown["labels"]
