"""What was measured is told, whatever becomes of its picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.bench import growth
from clearhead.cli import run

POINTS = [
    growth.Measured(growth.Point(axis, kernel, value), 0.25, 50 << 20)
    for axis, line in growth.AXES.items()
    for kernel in line.kernels
    for value in line.values[:2]
]


def test_a_picture_that_cannot_be_written_costs_no_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "measure", lambda **_: POINTS)
    (tmp_path / "growth.png").mkdir()
    assert run(["bench", "growth", "--threads", "1", "--out", str(tmp_path / "growth.png")]) == 74
    said = capsys.readouterr()
    assert said.out.count("| 250 |") == len(POINTS)
    assert said.err.splitlines()[-1].startswith(f"clearhead: cannot write {tmp_path / 'growth.png'}: ")
