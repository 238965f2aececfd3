"""A run directory in, the right to train in it out: to one process at a time, where the system can tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from clearhead.checkpoint import UNDER_WAY, all_steps
from clearhead.storage import hold, storage_error

_HELD: set[Path] = set()
"""The run directories that this process trains in."""


@contextmanager
def alone(run: Path) -> Iterator[None]:
    """Hold a run directory while it is trained in, or say that another process does.

    A file in it tells that the run is under way, and that its model directory, if it has one, is of an earlier end. It
    is left behind by a run that was killed, or failed after a checkpoint, and removed when a model is written.
    """
    place = run.resolve()
    if place in _HELD:  # Somebody who has left a run half-way and goes on with it; there is no other process.
        yield
        return
    mark = run / UNDER_WAY
    was_under_way, steps = mark.exists(), all_steps(run / "checkpoints")
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
            # Whoever was refused, or failed before a checkpoint, leaves the model as good as it was.
            if not (run / "model").is_dir() or (not was_under_way and all_steps(run / "checkpoints") == steps):
                with suppress(OSError):
                    mark.unlink()
