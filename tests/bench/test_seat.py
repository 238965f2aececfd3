"""Contestants in processes of their own: they answer in turns, say what failed, and leave when they are done."""

from __future__ import annotations

import pytest

from clearhead.bench.growth import Point, measure_point
from clearhead.bench.seat import Seat
from clearhead.errors import ClearheadError


def test_a_point_is_measured_in_a_process_of_its_own() -> None:
    found = measure_point(Point("width", "auto", 512), threads=1, steps=1)
    assert found.seconds > 0
    assert found.memory > 2**20


def test_the_memory_of_the_one_who_asks_is_not_counted() -> None:
    settings = {"name": "small", "point": Point("width", "auto", 16)._asdict(), "threads": 1}
    ballast = bytearray(b"x") * (3 * 2**30 // 2)
    with Seat("growth", settings) as seat:
        assert seat.facts["peak"] < len(ballast)


def test_a_contestant_that_fails_says_why_in_one_line() -> None:
    settings = {"name": "depth 0", "point": Point("depth", "auto", 0)._asdict(), "threads": 1}
    with Seat("growth", settings) as seat, pytest.raises(ClearheadError) as error:
        seat.ask({})
    assert str(error.value).startswith("the contestant 'depth 0' failed: ValidationError")


def test_a_contestant_that_cannot_sit_down_is_named() -> None:
    with pytest.raises(ClearheadError, match="the contestant 'nobody' failed: KeyError"):
        Seat("no such contest", {"name": "nobody"})
