"""Signals that come at any moment, also while stderr is written to."""

from __future__ import annotations

import os
import signal
import sys
from typing import TextIO

import pytest

from clearhead.cli.stopping import stoppable


class Busy:
    """A stderr in the middle of a write: Python refuses another one from within a signal."""

    def __init__(self, file: TextIO) -> None:
        self.fileno = file.fileno

    def write(self, text: str) -> int:
        raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")

    def flush(self) -> None: ...


def test_a_signal_amid_a_write_to_stderr_is_a_wish_to_stop_and_no_bug(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", Busy(sys.__stderr__))  # type: ignore[arg-type]
    with stoppable() as stop:
        stop.is_training = True
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop()
    assert capfd.readouterr().err == "clearhead: stopping after this step; once more to stop at once\n"
