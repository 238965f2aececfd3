"""A contestant's name and settings in, a process that works when told to out: one JSON line asks, one answers.

A new kind of contest is one line in SEATS: the module whose `sit(settings)` gives the function that answers a turn.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from clearhead.errors import ClearheadError, UnavailableError

Facts = dict[str, Any]
Turn = Callable[[Facts], Facts]

SEATS = {
    "train": "clearhead.bench.training",
    "decode": "clearhead.bench.decoding",
    "growth": "clearhead.bench.growth",
}


class Seat:
    """One contestant, in a process of its own, or in several that work as a team."""

    def __init__(self, kind: str, settings: Facts, processes: int = 1, environment: Facts | None = None) -> None:
        """`environment` is added to ours."""
        self.name = str(settings["name"])
        command = [sys.executable, "-m", "clearhead.bench.seat", kind, json.dumps(settings)]
        around = os.environ | (environment or {})
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=around | place)
            for place in _places(processes)
        ]
        try:
            self.facts = self._hear()
        except BaseException:
            self._leave(at_once=True)
            raise

    def ask(self, turn: Facts) -> Facts:
        """Let the contestant take one turn, and wait for its figures."""
        for process in self._processes:
            assert process.stdin is not None
            # One that is gone has left its reason behind, or an exit code.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(turn) + "\n")
                process.stdin.flush()
        return self._hear()

    def _hear(self) -> Facts:
        said = [self._heard(process) for process in self._processes]
        return {name: _altogether(name, [facts[name] for facts in said]) for name in said[0]}

    def _heard(self, process: subprocess.Popen[str]) -> Facts:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise UnavailableError(f"the contestant '{self.name}' ended with exit code {process.wait()}")
        facts: Facts = json.loads(line)
        if "error" in facts:
            raise ClearheadError(f"the contestant '{self.name}' failed: {facts['error']}")
        return facts

    def __enter__(self) -> Seat:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._leave(at_once=error is not None)

    def _leave(self, *, at_once: bool) -> None:
        """Closing its input asks the contestant to end; one in the middle of a step need not be waited for."""
        for process in self._processes:
            assert process.stdin is not None and process.stdout is not None
            if at_once:
                process.terminate()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in self._processes:
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _places(processes: int) -> list[dict[str, str]]:
    """What each process of a team is told, as torchrun would tell it; one alone is told nothing."""
    if processes == 1:
        return [{}]
    from clearhead.training.distributed import free_port

    size = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    team = {**size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [{**team, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]


def _altogether(name: str, figures: list[Any]) -> Any:
    """One figure of a team: its processes go side by side, so that all else adds up but not time."""
    return figures[0] if len(figures) == 1 else max(figures) if name == "seconds" else sum(figures)


def peak_memory() -> int:
    """The most bytes this process has held so far."""
    # Linux hands a parent's ru_maxrss on to what it starts; the mark in /proc begins anew with the program.
    status = Path("/proc/self/status")
    if status.exists() and (found := re.search(r"VmHWM:\s*(\d+) kB", status.read_text(encoding="utf-8"))):
        return 1024 * int(found[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    """Sit down, say so, and answer until the input ends."""
    kind, settings = sys.argv[1], json.loads(sys.argv[2])
    # The answers keep the real output for themselves: what a peer prints goes to stderr.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(facts: Facts) -> None:
        answers.write(json.dumps(facts) + "\n")
        answers.flush()

    try:
        turn: Turn = import_module(SEATS[kind]).sit(settings)
        answer({"peak": peak_memory()})
        for line in sys.stdin:
            answer({**turn(json.loads(line)), "peak": peak_memory()})
    except Exception as error:
        answer({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
