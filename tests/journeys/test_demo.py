"""`clearhead demo`: trains, scores, looks inside; again if asked, but never over what is not its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest

Clearhead = Callable[..., Any]


@pytest.fixture
def quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    small = (
        "train.steps=2", "train.validate_every=2", "data.train_size=60", "data.validation_size=4", "data.test_size=6",
        "model.dim=8", "model.ff_dim=8", "model.num_heads=2", "generation.max_len=6",
    )  # fmt: skip
    monkeypatch.setattr("clearhead.run.demonstration.QUICK", small)


@pytest.fixture
def no_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the package without its model."""
    monkeypatch.delenv("CLEARHEAD_MODEL", raising=False)
    monkeypatch.setattr("clearhead.run.built_in.assets", lambda: tmp_path / "no assets")


def test_the_demo_can_be_seen_twice(clearhead: Clearhead, quicker: None, no_box: None, tmp_path: Path) -> None:
    out = tmp_path / "a demo"
    without = "This copy of clearhead has no built-in model to show; it trains one.\n\n"
    for _ in range(2):
        said = clearhead("demo", "--quick", "--out", out)
        assert said.code == 0 and said.out == "" and "\x1b" not in said.err
        learns = "Clearhead learns to read German numbers aloud in English, from 60 examples.\n"
        assert said.err.startswith(without + learns)
        assert re.search(r"\n\d of 6 numbers it never saw are exactly right \(\d+\.\d %\)\.\n", said.err)
        assert re.search(r"\n917,253 +neunhundertsiebzehntausend", said.err)
        page = out / "page.html"
        assert f"  open in a browser:  {page.as_uri()}\n" in said.err and "a%20demo" in page.as_uri()
        assert '"source":"dreiundzwanzig"' in page.read_text(encoding="utf-8")
        assert f"  or as a picture:    {out}/attention.png\n" in said.err
        assert f"clearhead inspect '{out}/run' \"dreihunderteinundneunzig\" --out '{page}'" in said.err
        assert f"clearhead translate --model '{out}/run' \"zweiundvierzig\"" in said.err
        height, width, _ = matplotlib.image.imread(out / "attention.png").shape
        assert height > 300 and width > 300
    assert clearhead("translate", "-m", out / "run", "zweiundvierzig").code == 0


def test_the_demo_begins_with_the_model_in_the_box(
    clearhead: Clearhead, quicker: None, numbers_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEARHEAD_MODEL", str(numbers_run))
    said = clearhead("demo", "--quick", "--out", tmp_path / "demo")
    assert said.code == 0
    assert said.err.index("我吃了一个苹果。") < said.err.index("Clearhead learns")
    assert "Ich habe gestern" in said.err and 'translate "Wo ist der Bahnhof?"' in said.err


def test_the_demo_touches_nothing_that_is_not_its_own(clearhead: Clearhead, tmp_path: Path) -> None:
    mine = tmp_path / "run" / "config.toml"
    mine.parent.mkdir()
    mine.write_text("out = 'mine'\n", encoding="utf-8")
    for place in (tmp_path, mine):
        said = clearhead("demo", "--quick", "--out", place)
        assert said.code == 73
        assert said.err == f"clearhead: {place} was not made by the demo: choose another --out\n"
    assert mine.read_text(encoding="utf-8") == "out = 'mine'\n"


def test_an_empty_directory_may_be_used(clearhead: Clearhead, quicker: None, tmp_path: Path) -> None:
    assert clearhead("demo", "--quick", "--out", tmp_path).code == 0
