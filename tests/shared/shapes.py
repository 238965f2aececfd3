"""Shapes in signatures, left unchecked for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jaxtyping import config as shape_checks


@contextmanager
def unchecked_shapes() -> Iterator[None]:
    """As for users: checking takes most of the time of a tiny model, and other tests check each kind of step."""
    shape_checks.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        shape_checks.update("jaxtyping_disable", False)
