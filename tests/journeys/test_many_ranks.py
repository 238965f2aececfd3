"""Many processes, one config: torchrun and --processes, from the command line to the last checkpoint."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clearhead.cli.launching import cores, exit_code
from clearhead.training.distributed import TIMEOUT_VARIABLE, free_port
from clearhead.training.logbook import read_metrics

from .conftest import Clearhead, assignments

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")

KILLS = int(os.environ.get("CLEARHEAD_TEST_KILLS", "1"))
SAVE_EVERY = 5
SETTINGS = (
    "data.largest=500", "data.train_size=100", "data.validation_size=5", "data.test_size=5", "batches.max_tokens=256",
    "model.dim=8", "model.ff_dim=16", "model.num_heads=2", "model.encoder_layers=1", "model.decoder_layers=1",
    "train.log_every=1", "train.validate_every=1000000",
)  # fmt: skip


def environment() -> dict[str, str]:
    return {**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}


def words(out: Path, *settings: str) -> list[str]:
    return ["train", "numbers", "--out", str(out), *assignments(*SETTINGS, *settings)]


def progress(run: Path) -> dict[int, float]:
    metrics = run / "metrics.jsonl"
    rows = read_metrics(metrics) if metrics.exists() else []
    return {row["step"]: row["loss"] for row in rows if row["event"] == "progress"}


def ranks(parent: int) -> list[int]:
    """The processes of a team, not what else its launcher may have started."""
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            if b"clearhead" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found


@pytest.mark.timeout(60 + 120 * KILLS)
def test_killed_ranks_are_started_again_and_end_with_the_weights_of_an_undisturbed_team(tmp_path: Path) -> None:
    steps, save = f"train.steps={100 * (KILLS + 1)}", f"train.save_every={SAVE_EVERY}"
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    undisturbed = [sys.executable, "-m", "clearhead", *words(whole, steps), "--processes", "2"]
    said = subprocess.run(undisturbed, capture_output=True, text=True, check=False, env=environment())
    assert said.returncode == 0, said.stderr
    assert said.stdout == "" and said.stderr.count("step 50/") == 1, "one of them speaks"
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    command = [*torchrun, "--max-restarts", str(KILLS), "-m", "clearhead", *words(killed, steps, save)]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stderr=log, env=environment()) as process:
        kill_ranks(process, killed, random.Random(3))
    assert process.returncode == 0, (tmp_path / "log").read_text()
    assert progress(killed) == progress(whole), "resumed on as many processes, to the bit"
    weights = [(run / "model" / "model.safetensors").read_bytes() for run in (whole, killed)]
    assert weights[0] == weights[1]
    assert (killed / "train.log").read_text().count("resuming at step") >= KILLS - 2


def kill_ranks(process: subprocess.Popen[bytes], run: Path, chance: random.Random) -> None:
    """Kill ranks at random moments: while they start, after a step or so, and from then on after a checkpoint."""
    gone: set[int] = set()
    reached = 0
    for number in range(KILLS):
        goal = (0, 1)[number] if number < 2 else reached + SAVE_EVERY + 1
        while len(team := set(ranks(process.pid)) - gone) < 2 or max(progress(run), default=0) < goal:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.3))
        reached, gone = max(progress(run), default=0), gone | team
        os.kill(chance.choice(sorted(team)), signal.SIGKILL)


@pytest.mark.parametrize(("number", "code"), [
    pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow), (signal.SIGTERM, 143),
], ids=["int", "term"])  # fmt: skip
def test_a_signal_to_the_launcher_stops_all_after_the_step_and_saves(
    tmp_path: Path, clearhead: Clearhead, number: signal.Signals, code: int
) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "clearhead", *words(out, "train.steps=1000000"), "--processes", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith(b"step "):
            assert process.poll() is None
        process.send_signal(number)
        told = process.stderr.read().decode()
    assert process.returncode == code, told
    assert told.count("clearhead: stopping after this step; once more to stop at once\n") == 1
    assert "Traceback" not in told and "torch" not in told
    stopped = re.search(r"interrupted at step (\d+) after", told)
    assert stopped is not None and told.endswith(f"saved; go on with: clearhead train {out} --resume\n")
    step = int(stopped[1])
    said = clearhead("train", out, "--resume", "--set", f"train.steps={step + 2}")
    assert said.code == 0 and f"resuming at step {step}: {step + 2} steps" in said.err


def test_a_mistake_is_one_line_whatever_the_number_of_processes(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    command = [sys.executable, "-m", "clearhead", *words(tmp_path), "--processes", "2"]
    said = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert said.returncode == 73
    assert said.stderr == f"clearhead: {tmp_path} is not empty: go on with --resume, or choose another --out\n"


# Without torchrun: what one process makes of its environment ---------------------------------------------------------


@pytest.fixture
def second_of_two(monkeypatch: pytest.MonkeyPatch) -> int:
    """The environment of the second process of two, whose first is not there; the port of their meeting."""
    port = free_port()
    settings = {"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in settings.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv(TIMEOUT_VARIABLE, "0.5")
    return port


def test_an_unreachable_first_host_is_named_with_what_to_check(
    clearhead: Clearhead, second_of_two: int, tmp_path: Path
) -> None:
    began = time.monotonic()
    said = clearhead(*words(tmp_path / "run"))
    assert time.monotonic() - began < 30
    assert said.code == 69
    assert said.err == (
        f"clearhead: rank 1 tried 127.0.0.1:{second_of_two} for 0.5 s and could not reach it (Connection refused): "
        "check that the first host runs, that MASTER_ADDR and MASTER_PORT name it, and that no firewall is between; "
        f"{TIMEOUT_VARIABLE} sets how long to try\n"
    )


def test_a_first_process_that_stays_alone_says_how_many_came(
    clearhead: Clearhead, second_of_two: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    said = clearhead(*words(tmp_path / "run"))
    assert said.code == 69
    assert f"rank 0 waited 0.5 s at 127.0.0.1:{second_of_two} and 1 of 2 processes came: check" in said.err


BROKEN = {
    "no port": ({"MASTER_PORT": None}, 78, "RANK is set but MASTER_PORT not: start with torchrun, or set them all"),
    "no number": ({"WORLD_SIZE": "two"}, 78, "WORLD_SIZE should be a number, not 'two'"),
    "too high": ({"RANK": "2"}, 78, "RANK is 2, and of 2 processes the last has 1"),
    "bad timeout": ({TIMEOUT_VARIABLE: "soon"}, 78, f"{TIMEOUT_VARIABLE} should be a number of seconds, not 'soon'"),
}


@pytest.mark.usefixtures("second_of_two")
@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_environment_is_one_line(
    clearhead: Clearhead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    changes, code, message = BROKEN[case]
    for name, value in changes.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    said = clearhead(*words(tmp_path / "run"))
    assert said.code == code
    assert said.err.startswith(f"clearhead: {message}") and said.err.count("\n") == 1


@pytest.mark.usefixtures("second_of_two")
def test_torchrun_and_processes_do_not_go_together(clearhead: Clearhead, tmp_path: Path) -> None:
    said = clearhead(*words(tmp_path / "run"), "--processes", "3")
    assert (said.code, said.out) == (2, "")
    assert said.err == "clearhead: this is one of 1 processes that were started here: leave out --processes\n"


def test_resuming_what_has_not_begun_begins_it(clearhead: Clearhead, tmp_path: Path) -> None:
    said = clearhead(*words(tmp_path / "run", "train.steps=2"), "--resume")
    assert said.code == 0 and "starting: 2 steps" in said.err
    said = clearhead(*words(tmp_path / "run", "train.steps=3"), "--resume")
    assert said.code == 0 and "resuming at step 2: 3 steps" in said.err


def test_the_first_process_that_can_speak_decides_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code({1: 69, 0: 74}) == 74
    assert exit_code({0: -9, 1: 69}) == 69
    assert capsys.readouterr().err == ""
    assert exit_code({1: -9}) == 137
    assert capsys.readouterr().err == "clearhead: process 1 was killed by signal 9; go on with --resume\n"
    assert cores() >= 1
