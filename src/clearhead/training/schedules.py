"""A step number in, a learning rate out.

A new schedule is one function and one line in SCHEDULES. Steps count from 1; every schedule warms up linearly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple


class Course(NamedTuple):
    """What a schedule knows of the run."""

    lr: float
    warmup: int
    total_steps: int
    dim: int


Schedule = Callable[[int, Course], float]


def noam(step: int, course: Course) -> float:
    """The paper's: lr · dim^-½ · min(step^-½, step · warmup^-1½); here `lr` is a plain factor, usually 1.

    >>> course = Course(lr=1.0, warmup=4000, total_steps=0, dim=512)
    >>> f"{noam(4000, course):.6f}"
    '0.000699'
    """
    return course.lr * course.dim**-0.5 * min(step**-0.5, step * max(course.warmup, 1) ** -1.5)


def inverse_sqrt(step: int, course: Course) -> float:
    """Up to `lr` at the end of warm-up, then falling with the square root of the step."""
    return course.lr * _warm(step, course) * math.sqrt(max(course.warmup, 1) / max(step, course.warmup, 1))


def cosine(step: int, course: Course) -> float:
    """Half a cosine wave from `lr` down to zero at the last step."""
    return course.lr * _warm(step, course) * 0.5 * (1 + math.cos(math.pi * _done(step, course)))


def linear(step: int, course: Course) -> float:
    """A straight line from `lr` down to zero at the last step."""
    return course.lr * _warm(step, course) * (1 - _done(step, course))


def constant(step: int, course: Course) -> float:
    """`lr` throughout."""
    return course.lr * _warm(step, course)


def _warm(step: int, course: Course) -> float:
    return min(1.0, step / course.warmup) if course.warmup else 1.0


def _done(step: int, course: Course) -> float:
    # The last step still moves: it counts as one step before the end, so its rate is not zero.
    falling = max(course.total_steps - course.warmup, 1)
    return min(max(step - 1 - course.warmup, 0) / falling, 1.0)


SCHEDULES: dict[str, Schedule] = {
    "noam": noam,
    "inverse_sqrt": inverse_sqrt,
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
}
