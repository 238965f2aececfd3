"""A training run as a process: a signal stops it, everything is saved, and it goes on afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearhead.cli.stopping import Stop, stoppable

PROGRAM = (sys.executable, "-m", "clearhead")
SETTINGS = (
    "data.largest=500", "data.train_size=100", "data.validation_size=5", "data.test_size=5", "batches.max_tokens=256",
    "model.dim=8", "model.ff_dim=16", "model.num_heads=2", "model.encoder_layers=1", "model.decoder_layers=1",
    "train.log_every=1",
)  # fmt: skip


def training(out: Path, *settings: str) -> list[str]:
    assignments = [word for setting in (*SETTINGS, *settings) for word in ("--set", setting)]
    return [*PROGRAM, "train", "numbers", "--out", str(out), "--threads", "1", *assignments]


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm-256color", **changes}


@pytest.mark.parametrize(("number", "code"), [
    (signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_stopped_run_saves_says_how_to_go_on_and_goes_on(
    clearhead: Callable[..., Any], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    out = tmp_path / "run"
    words = training(out, "train.steps=1000000", "train.validate_every=1000000")
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stderr is not None and process.stdout is not None
        while not process.stderr.readline().startswith(b"step "):
            assert process.poll() is None
        process.send_signal(number)
        told = process.stderr.read().decode()
        assert process.stdout.read() == b""
    assert process.returncode == code
    assert "clearhead: stopping after this step; once more to stop at once\n" in told
    assert re.search(r"interrupted at step \d+ after 0:00:\d\d", told)
    assert told.endswith(f"saved; go on with: clearhead train {out} --resume\n")
    assert "Traceback" not in told and "\x1b" not in told
    step = json.loads(clearhead("info", out, "--json").out)["step"]
    said = clearhead("train", out, "--resume", "--set", f"train.steps={step + 2}")
    assert said.code == 0 and f"resuming at step {step}: {step + 2} steps" in said.err
    assert f"done at step {step + 2}" in said.err


def test_before_the_first_step_there_is_nothing_to_wait_for() -> None:
    with pytest.raises(KeyboardInterrupt), stoppable() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
    assert stop.exit_code == 143


def test_a_second_sigterm_is_the_first_once_more(capsys: pytest.CaptureFixture[str]) -> None:
    with stoppable() as stop:
        stop.is_training = True
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert stop() and stop.exit_code == 143
        assert capsys.readouterr().err == "clearhead: stopping after this step; once more to stop at once\n"


def test_the_first_signal_is_a_wish_and_the_second_an_order(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), stoppable() as stop:
        stop.is_training = True
        os.kill(os.getpid(), signal.SIGINT)
        assert stop() and stop.exit_code == 130
        assert capsys.readouterr().err == "clearhead: stopping after this step; once more to stop at once\n"
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert not Stop()()
