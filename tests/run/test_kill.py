"""SIGKILL at random moments: every run goes on, and ends with the weights of one that nobody touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MANY = 50
"""So many kills that every kind of moment is met."""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork and no SIGKILL")
@pytest.mark.parametrize("kills", [5, pytest.param(MANY, marks=pytest.mark.slow)])
def test_as_many_kills_at_random_moments_as_resume(tmp_path: Path, kills: int) -> None:
    script = Path(__file__).with_name("killing.py")
    command = [sys.executable, str(script), str(tmp_path), str(kills), "7"]
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280, env=environment)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["complaints"] == []
    assert (report["kills"], report["resumed"]) == (kills, kills)
    assert report["rubble"] == []
    if kills == MANY:
        assert report["before_the_first_save"] > 0, "some kills came before there was anything to resume from"
        assert report["in_the_middle_of_a_save"] > 0, "and some while a checkpoint was half written"
        assert report["killed_at_the_end"] > 0
        assert report["without_model"] > 0, "some came while the model directory was being written"
        assert report["finished_runs"] >= 2
