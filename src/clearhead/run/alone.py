"""A run directory in, the right to train in it out: to one process at a time, where the system can tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from clearhead.checkpoint import UNDER_WAY
from clearhead.errors import UnavailableError
from clearhead.storage import storage_error

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
        _hold(file, run)
        _HELD.add(place)
        try:
            yield
        finally:
            _HELD.discard(place)
            if not (run / "model").is_dir():
                with suppress(OSError):
                    mark.unlink()


def _hold(file: IO[bytes], run: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UnavailableError(f"{run} is being trained by another process: wait for it, or stop it") from None
    except OSError:  # Some network drives cannot tell.
        return
