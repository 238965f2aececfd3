"""Jobs in, results out, from several one-thread processes: on small products they do more than one of many threads.

The processes are forks, so they share the model's memory and are ready in milliseconds. Jobs and results cross over as
JSON. They end with whoever started them: when their pipe closes, for whatever reason, they are done.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, TypeAlias

import torch

from clearhead import errors
from clearhead.errors import ClearheadError, UnavailableError

Work: TypeAlias = Callable[[Any], Any]
"""One job in, its result out; both made of what JSON knows."""


def can_fork() -> bool:
    """Whether a process that computes may be forked here: elsewhere than on Linux the mathematics may hang."""
    return sys.platform == "linux"


class Crew:
    """Processes that all do the same work; to be used in a `with` block."""

    def __init__(self, work: Work, count: int) -> None:
        if not can_fork():
            raise UnavailableError("several worker processes need Linux: leave workers at 1")
        self._pipes: list[Connection] = []
        self._processes: list[multiprocessing.process.BaseProcess] = []
        try:
            for _ in range(count):
                self._hire(work)
        except BaseException:
            self.__exit__()
            raise

    def __len__(self) -> int:
        return len(self._processes)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()

    def do(self, jobs: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Each job's number and its result, as they come."""
        waiting = list(enumerate(jobs))[::-1]
        under_way: dict[Connection, int] = {}
        idle = list(self._pipes)
        while waiting or under_way:
            while waiting and idle:
                number, job = waiting.pop()
                pipe = idle.pop()
                self._send(pipe, job)
                under_way[pipe] = number
            for ready in wait(list(under_way)):
                assert isinstance(ready, Connection)
                result = self._receive(ready)
                idle.append(ready)
                yield under_way.pop(ready), result

    def _hire(self, work: Work) -> None:
        ours, theirs = multiprocessing.Pipe()
        self._pipes.append(ours)
        process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(work, theirs, tuple(self._pipes)), daemon=True
        )
        # Ctrl-C is for whoever started them: until a worker ignores it, nobody hears it.
        heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with warnings.catch_warnings():
                # Python warns of forks beside threads: a worker uses none but its own.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, heard)
        self._processes.append(process)
        theirs.close()

    def _send(self, pipe: Connection, job: Any) -> None:
        try:
            pipe.send_bytes(json.dumps(job).encode())
        except OSError:
            raise self._lost(pipe) from None

    def _receive(self, pipe: Connection) -> Any:
        try:
            answer = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            raise self._lost(pipe) from None
        if "error" in answer:
            raise _as_error(answer["error"], answer["said"])
        return answer["result"]

    def _lost(self, pipe: Connection) -> UnavailableError:
        process = self._processes[self._pipes.index(pipe)]
        process.join(timeout=1)
        code = process.exitcode or 0
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return UnavailableError(
            f"a worker process ended before its work was done ({how}): out of memory perhaps; try again with workers 1"
        )


def _serve(work: Work, pipe: Connection, others: Sequence[Connection]) -> None:
    """What a worker does all its life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # A copy of the starter's ends would keep the pipes open when the starter is gone.
    for other in others:
        other.close()
    torch.set_num_threads(1)
    while True:
        try:
            job = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)
        try:
            answer = {"result": work(job)}
        except Exception as error:
            answer = {"error": type(error).__name__, "said": str(error)}
        try:
            pipe.send_bytes(json.dumps(answer).encode())
        except OSError:
            os._exit(0)


def _as_error(name: str, said: str) -> Exception:
    """An error of ours as it was raised, and any other under its name."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, ClearheadError):
        return kind(said)
    return RuntimeError(f"in a worker process: {name}: {said}")
