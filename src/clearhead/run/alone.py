"""A run directory in, the right to train in it out: to one process at a time, where the system can tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from clearhead.checkpoint import UNDER_WAY
from clearhead.storage import hold, storage_error

_HELD: set[Path] = set()
"""The run directories that this process trains in."""


@contextmanager
def alone(run: Path) -> Iterator[None]:
    """Hold a run directory while it is trained in, or say that another process does.

    A file in it tells that the run is under way, and that its model directory, if it has one, is of an earlier end. It
    is left behind by a run that was killed or failed, and removed when a model directory is written.
    """
    place = run.resolve()
    if place in _HELD:  # Somebody who has left a run half-way and goes on with it; there is no other process.
        yield
        return
    mark = run / UNDER_WAY
    try:
        run.mkdir(parents=True, exist_ok=True)
        file = mark.open("ab")
    except OSError as error:
        raise storage_error(run, error) from error
    with file:
        hold(file, f"{run} is being trained")
        _HELD.add(place)
        try:
            yield
        finally:
            _HELD.discard(place)
            if not (run / "model").is_dir():
                with suppress(OSError):
                    mark.unlink()
