"""`clearhead data list` and `data fetch`, as a person would use them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clearhead.cli import run
from clearhead.data.sets import SETS


@pytest.fixture(autouse=True)
def nothing_here(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    if request.node.get_closest_marker("real_data") is None:
        monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path / "mine"))


def test_the_list_names_every_set_with_its_licence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "list"]) == 0
    shown = capsys.readouterr().out
    for name, entry in SETS.items():
        assert name in shown
        assert entry.licence in shown
    assert shown.count("absent") == len(SETS)


def test_the_list_is_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "list", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == list(SETS)


def test_a_set_that_must_be_put_there_says_where(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["data", "fetch", "tatoeba"]) == 69
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert f"put it into {tmp_path / 'mine' / 'tatoeba'}" in shown.err


def test_a_misspelt_set_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "fetch", "multi30"]) == 78
    assert "did you mean 'multi30k'" in capsys.readouterr().err


def test_a_recipe_for_an_absent_set_says_how_to_get_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "a.toml"
    config.write_text(
        '[data]\ndataset = "multi30k"\nsource = "train.de"\ntarget = "train.en"\n[train]\nsteps = 1\n', encoding="utf-8"
    )
    assert run(["train", str(config), "--out", str(tmp_path / "run")]) == 69
    shown = capsys.readouterr().err.strip().splitlines()
    assert len(shown) == 1
    assert "clearhead data fetch multi30k, or put train.de" in shown[0]


@pytest.mark.real_data("multi30k")
def test_a_set_that_is_here_is_checked_and_named(
    real_data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEARHEAD_DATA", str(real_data.parent))
    assert run(["data", "fetch", "multi30k"]) == 0
    assert capsys.readouterr().out == f"{real_data}\n"
