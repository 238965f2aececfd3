"""A server in a process of its own, started as a person would, and told to stop at the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE = 60.0


@dataclass
class Process:
    """A server that runs."""

    process: subprocess.Popen[str]
    address: str = ""
    said: list[str] = field(default_factory=list)
    """What it wrote to stderr."""

    def stop(self, number: int = signal.SIGTERM, seconds: float = 30.0) -> int:
        """Tell it to stop, and wait until it has."""
        self.process.send_signal(number)
        return self.process.wait(seconds)


@contextmanager
def serving(*models: Path | str, flags: Sequence[str] = (), keys: str | None = None) -> Iterator[Process]:
    """A server of these models on a free port."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **({"CLEARHEAD_KEYS": keys} if keys else {})}
    command = [sys.executable, "-m", "clearhead", "serve", *map(str, models), "--port", "0", "--device", "cpu", *flags]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    server = Process(started)
    ready = threading.Event()

    def listen() -> None:
        assert started.stderr is not None
        for line in started.stderr:
            server.said.append(line)
            found = re.search(r"serving on (http://\S+)", line)
            if found:
                server.address = found[1]
                ready.set()
        ready.set()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        assert ready.wait(PATIENCE) and server.address, "".join(server.said)
        yield server
    finally:
        if started.poll() is None:
            started.kill()
        started.wait()
        listener.join(5)
        for pipe in (started.stderr, started.stdout):
            if pipe is not None:
                pipe.close()
