"""A run that was made with relative names is gone on with and scored from other folders, and after a move."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clearhead.data.numbers import spell

from .conftest import TINY, Clearhead, assignments

SHORT = (
    "tokenizer.kind=char", "model.dim=8", "model.ff_dim=8", "model.num_heads=2", "model.num_layers=1",
    "model.max_len=16", "batches.max_tokens=128", "train.warmup=2",
)  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data in it, and another one beside it."""
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    for language in ("de", "en"):
        lines = "".join(f"{spell(number, language)}\n" for number in range(100, 160))
        (folder / "data" / f"a.{language}").write_text(lines, encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


def test_a_translator_from_another_folder_and_after_a_move(
    project: Path, clearhead: Clearhead, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ("--source", "data/a.de", "--target", "data/a.en", "--out", "runs/one")
    settings = assignments(*TINY, "data.hold_out=5", "train.steps=1")
    assert clearhead("train", "translator", *files, *settings).code == 0
    monkeypatch.chdir(project.parent / "elsewhere")
    said = clearhead("train", "../project/runs/one", "--resume", "--set", "train.steps=2")
    assert said.code == 0 and "resuming at step 1" in said.err, said.err
    scored = clearhead("score", "--model", "../project/runs/one", "--split", "validation", "--json")
    assert scored.code == 0, scored.err
    assert clearhead("score", "--model", "../project/runs/one/model", "--split", "validation").code == 0
    project.rename(project.with_name("moved"))
    again = clearhead("score", "--model", "../moved/runs/one", "--split", "validation", "--json")
    assert again.code == 0 and json.loads(again.out) == json.loads(scored.out)
    assert clearhead("train", "../moved/runs/one", "--resume", "--set", "train.steps=3").code == 0
    (project.with_name("moved") / "data" / "a.de").unlink()
    lost = clearhead("train", "../moved/runs/one", "--resume", "--set", "train.steps=4")
    assert lost.code == 66 and lost.err.count("\n") == 1
    assert "moved/data/a.de, where the training data were: put data/a.de there" in lost.err


def test_a_file_of_the_same_name_is_not_taken_for_lost_data(project: Path, clearhead: Clearhead) -> None:
    files = ("--source", "data/a.de", "--target", "data/a.en", "--out", "runs/one")
    assert clearhead("train", "translator", *files, *assignments(*TINY, "data.hold_out=5", "train.steps=1")).code == 0
    away = project.parent / "away"
    away.mkdir()
    (project / "runs").rename(away / "runs")
    for command in (("score", "--model", "../away/runs/one", "--split"), ("train", "../away/runs/one", "--resume")):
        lost = clearhead(*command, *(("validation",) if "score" in command else ()))
        assert lost.code == 66 and lost.err.count("\n") == 1 and "away/data/a.de" in lost.err, lost.err
    went_on = clearhead("train", "../away/runs/one", "--resume", *assignments("train.steps=2", "data.base=."))
    assert went_on.code == 0, went_on.err
    scored = clearhead("score", "--model", "../away/runs/one", "--split", "validation")
    assert scored.code == 0, "where the data are is written down"


def test_a_language_model_and_its_config_used_again(
    project: Path, clearhead: Clearhead, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", "gpt", "--text", "data/a.en", "--out", "runs/one", *assignments(*SHORT, "train.steps=1"))
    assert clearhead(*words).code == 0
    monkeypatch.chdir(project.parent / "elsewhere")
    assert clearhead("score", "--model", "../project/runs/one", "--split", "validation").code == 0
    said = clearhead("train", "../project/runs/one/config.toml", "--out", "two")
    assert said.code == 0, said.err
    monkeypatch.chdir(project)
    assert clearhead("train", "../elsewhere/two", "--resume", "--set", "train.steps=2").code == 0
