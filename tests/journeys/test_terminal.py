"""What a person sees on a terminal: a bar that fits, colours unless unwanted, a conversation line by line."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

SETTINGS = (
    "data.largest=500", "data.train_size=100", "data.validation_size=5", "data.test_size=5", "batches.max_tokens=256",
    "model.dim=8", "model.ff_dim=16", "model.num_heads=2", "model.encoder_layers=1", "model.decoder_layers=1",
    "train.log_every=1", "train.steps=12", "train.validate_every=12",
)  # fmt: skip


def open_terminal(columns: int) -> tuple[int, int]:
    """Both ends of a terminal of this width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    return master, slave


def environment(**changes: str) -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    return {**known, "OMP_NUM_THREADS": "1", "TERM": "xterm-256color", **changes}


def read_all(master: int) -> str:
    """All that was drawn until the other end was closed."""
    drawn = b""
    while True:
        try:
            block = os.read(master, 65536)
        except OSError:
            return drawn.decode()
        drawn += block


@pytest.mark.parametrize(("columns", "changes"), [
    (80, {"NO_COLOR": "1"}), pytest.param(120, {}, marks=pytest.mark.slow),
])  # fmt: skip
def test_training_shows_a_bar_that_fits_and_then_goes_away(
    tmp_path: Path, columns: int, changes: dict[str, str]
) -> None:
    assignments = [word for setting in SETTINGS for word in ("--set", setting)]
    words = [sys.executable, "-m", "clearhead", "train", "numbers", "--out", str(tmp_path / "run"), *assignments]
    master, slave = open_terminal(columns)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=slave, env=environment(**changes)) as process:
        os.close(slave)
        drawn = read_all(master)
    os.close(master)
    assert process.returncode == 0
    is_coloured = re.search("\x1b\\[[0-9;]*3[0-9][0-9;]*m", drawn) is not None
    assert is_coloured == ("NO_COLOR" not in changes)
    lines = [re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", line).strip("\r") for line in drawn.split("\n")]
    bars = [part for line in lines for part in line.split("\r") if "━" in part and "step " in part]
    assert bars and all(len(bar.rstrip()) <= columns and "eta 0:" in bar for bar in bars)
    assert any("gnorm" in bar for bar in bars) == (columns == 120)
    assert lines[-2].startswith("the model is in ") and "━" not in lines[-2]


def test_a_person_who_types_is_answered_line_by_line(files_run: Path) -> None:
    words = [sys.executable, "-m", "clearhead", "translate", "-m", str(files_run), "--json", "--max-len", "3"]
    master, slave = open_terminal(100)
    with subprocess.Popen(words, stdin=slave, stdout=subprocess.PIPE, stderr=slave, env=environment()) as process:
        os.close(slave)
        assert process.stdout is not None
        asked = read_until(master, "Ctrl-D ends")
        os.write(master, b"einhundert\n")
        first = process.stdout.readline()
        os.write(master, b"\n\x04")
        rest = process.stdout.read()
        process.wait(timeout=60)
    os.close(master)
    assert process.returncode == 0
    assert "type a text and press Enter; Ctrl-D ends" in asked and "translating" not in asked
    assert json.loads(first)["source"] == "einhundert" and json.loads(rest)["source"] == ""


def read_until(master: int, end: str) -> str:
    drawn = b""
    while end.encode() not in drawn:
        drawn += os.read(master, 65536)
    return drawn.decode()


def test_training_goes_on_and_saves_when_its_terminal_is_closed(tmp_path: Path) -> None:
    assignments = [word for setting in SETTINGS for word in ("--set", setting)]
    words = [sys.executable, "-m", "clearhead", "train", "numbers", "--out", str(tmp_path / "run"), *assignments]
    master, slave = open_terminal(80)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=slave, env=environment()) as process:
        os.close(slave)
        assert os.read(master, 1)
        os.close(master)
    assert process.returncode == 0
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
