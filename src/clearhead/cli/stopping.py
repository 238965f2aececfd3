"""Ctrl-C and SIGTERM in, a wish to stop out, granted when nothing will be lost."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from clearhead.cli import show
from clearhead.errors import INTERRUPTED, TERMINATED


class Stop:
    """Whether a signal has asked the run to end; calling it tells."""

    signal: int | None = None
    is_training = False
    """Before the first step there is nothing to save, so nothing to wait for."""

    def __call__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        return TERMINATED if self.signal == signal.SIGTERM else INTERRUPTED


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Turn the first Ctrl-C or SIGTERM into a wish, granted after the current step; a second Ctrl-C ends the run.

    A second SIGTERM is the first once more: a launcher passes on what its workers were sent, too.
    """
    stop = Stop()

    def wish(number: int, frame: object) -> None:
        is_repeated = stop()
        stop.signal = number
        if not stop.is_training or (is_repeated and number == signal.SIGINT):
            raise KeyboardInterrupt
        if not is_repeated:
            _tell("stopping after this step; once more to stop at once")

    before = {number: signal.signal(number, wish) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(line: str) -> None:
    """Say something from within a signal, which may have come while stderr was written to: then Python refuses to."""
    try:
        show.fail(line)
    except RuntimeError:
        with suppress(OSError):
            os.write(sys.stderr.fileno(), f"clearhead: {line}\n".encode())
