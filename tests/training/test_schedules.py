"""Schedules: laws over the table, and the paper's formula."""

from __future__ import annotations

from itertools import pairwise

import pytest

from clearhead.training.schedules import SCHEDULES, Course

COURSE = Course(lr=0.01, warmup=10, total_steps=100, dim=64)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_rises_during_warm_up(name: str) -> None:
    rates = [SCHEDULES[name](step, COURSE) for step in range(1, 11)]
    assert all(later > earlier > 0 for earlier, later in pairwise(rates))


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_schedule_rises_after_warm_up_or_ever_stands_still(name: str) -> None:
    rates = [SCHEDULES[name](step, COURSE) for step in range(10, 101)]
    assert all(later <= earlier for earlier, later in pairwise(rates))
    assert min(rates) > 0


@pytest.mark.parametrize("name", sorted(SCHEDULES.keys() - {"noam"}))
def test_the_peak_is_the_rate_that_was_asked_for(name: str) -> None:
    assert max(SCHEDULES[name](step, COURSE) for step in range(1, 101)) == pytest.approx(0.01)


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_warm_up_is_allowed(name: str) -> None:
    assert SCHEDULES[name](1, COURSE._replace(warmup=0)) > 0


@pytest.mark.parametrize("step", [1, 7, 4000, 20_000])
def test_noam_is_the_papers_formula(step: int) -> None:
    course = Course(lr=1.0, warmup=4000, total_steps=0, dim=512)
    assert SCHEDULES["noam"](step, course) == pytest.approx(512**-0.5 * min(step**-0.5, step * 4000**-1.5))


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_falling_schedules_end_near_zero(name: str) -> None:
    assert SCHEDULES[name](100, COURSE) < 0.05 * COURSE.lr
