"""What the tests of whole runs share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """No picture of the loss and no samples for people: they take longer than all steps of a tiny run."""
    monkeypatch.setattr("clearhead.train.logbook.draw_curve", lambda metrics, picture: None)
    monkeypatch.setattr("clearhead.run.training._samples", lambda model, prepared, device: ())


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is written to a relative path is written where nobody minds."""
    monkeypatch.chdir(tmp_path)
