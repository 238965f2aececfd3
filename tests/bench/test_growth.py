"""What grows, grows alone; and the picture shows it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from clearhead.bench.growth import AXES, COLUMNS, LENGTH, MIDDLE, Measured, Point, draw, row, sized


def test_only_what_grows_differs_from_the_middle() -> None:
    differing = {
        name: {key for key, value in asdict(sized(Point(name, "auto", 320))[0]).items() if value != asdict(MIDDLE)[key]}
        for name in AXES
    }
    assert differing == {
        "length": set(),
        "width": {"dim", "ff_dim"},
        "depth": {"num_layers"},
        "vocabulary": {"source_vocab_size", "target_vocab_size"},
    }
    assert [sized(Point(name, "auto", 320))[1] for name in AXES] == [320, LENGTH, LENGTH, LENGTH]


def test_a_quick_run_measures_fewer_points_of_every_line() -> None:
    for name, axis in AXES.items():
        quick, whole = (axis.points(name, quick=flag) for flag in (True, False))
        assert set(quick) < set(whole)
        assert {point.kernel for point in quick} == set(axis.kernels)


def test_every_measurement_is_a_row_and_a_dot(tmp_path: Path) -> None:
    points = [point for name, axis in AXES.items() for point in axis.points(name, quick=True)]
    found = [Measured(point, 0.001 * point.value, 2**20 * point.value) for point in points]
    assert row(Measured(Point("length", "exact", 512), 0.5, 2**21)) == (
        "tokens in a sentence", "512", "exact", "500", "4,096", "2",
    )  # fmt: skip
    assert all(len(row(one)) == len(COLUMNS) for one in found)
    draw(found, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
