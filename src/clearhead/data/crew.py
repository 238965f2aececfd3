"""Chunks of sentence pairs in, their token ids out in the same order: the work of this process or of several.

The others are this module run as a program: chunks come to their standard input as JSON, ids go to their standard
output as bytes. Nothing is pickled, and a script that trains needs no guard against being imported again. They end when
their input does, so none outlives the process that started it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import signal
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import IO, NamedTuple

import numpy as np

from clearhead.errors import ClearheadError, DataError
from clearhead.text import Tokenizer, TokenizerPair

MOST_WORKERS = 8
"""What one process can keep supplied with text."""
WORTH_A_CREW = 100_000
"""Fewer pairs are done before the others have started."""

_CHUNK = 4096
_SIZE = struct.Struct("<q")

Pair = tuple[int, str, str]


class Encoded(NamedTuple):
    """The pairs of one chunk that are short enough, as columns of raw numbers."""

    source_ids: bytes
    source_lengths: bytes
    target_ids: bytes
    target_lengths: bytes
    line_numbers: bytes
    dropped: int


def num_workers(pairs: int, wanted: int | None = None) -> int:
    """How many processes should tokenise so many pairs: as many as wanted, or one for each core we may use."""
    if wanted is not None:
        return wanted
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_WORKERS) if pairs >= WORTH_A_CREW else 1


def encoded(
    pairs: Iterable[Pair], tokenizers: TokenizerPair, max_len: int, workers: int = 1, chunk: int = _CHUNK
) -> Generator[Encoded, None, None]:
    """Encode pairs a chunk at a time; how many work on it changes nothing in what comes out."""
    chunks = _chunks(pairs, chunk)
    if workers == 1:
        yield from (encode_chunk(pairs, tokenizers, max_len) for pairs in chunks)
    else:
        with _Crew(tokenizers, max_len, workers) as crew:
            yield from crew.encode(chunks)


def encode_chunk(chunk: Sequence[Pair], tokenizers: TokenizerPair, max_len: int) -> Encoded:
    """Encode some pairs; one is dropped if a side with its `</s>` is longer than `max_len`."""
    lines = [line for line, _, _ in chunk]
    sources = _pack(tokenizers.source, lines, [source for _, source, _ in chunk])
    targets = _pack(tokenizers.target, lines, [target for _, _, target in chunk])
    most_source, most_target = max_len * _width(tokenizers.source), max_len * _width(tokenizers.target)
    kept = [
        row
        for row, (source, target) in enumerate(zip(sources, targets, strict=True))
        if len(source) < most_source and len(target) < most_target
    ]
    return Encoded(
        *_joined(tokenizers.source, [sources[row] for row in kept]),
        *_joined(tokenizers.target, [targets[row] for row in kept]),
        np.array([lines[row] for row in kept], dtype="<i8").tobytes(),
        len(chunk) - len(kept),
    )


def _pack(tokenizer: Tokenizer, lines: Sequence[int], texts: Sequence[str]) -> list[bytes]:
    try:
        return tokenizer.pack(texts)
    except DataError:
        for line, text in zip(lines, texts, strict=True):
            try:
                tokenizer.encode(text)
            except DataError as error:
                raise DataError(f"line {line}: {error}") from None
        raise


def _joined(tokenizer: Tokenizer, rows: Sequence[bytes]) -> tuple[bytes, bytes]:
    sizes = np.fromiter(map(len, rows), dtype="<i4", count=len(rows))
    return b"".join(rows), (sizes // _width(tokenizer)).tobytes()


def _width(tokenizer: Tokenizer) -> int:
    return np.dtype(tokenizer.id_type).itemsize


def _chunks(pairs: Iterable[Pair], size: int) -> Iterator[list[Pair]]:
    rest = iter(pairs)
    while chunk := list(itertools.islice(rest, size)):
        yield chunk


class _Crew:
    """Processes that encode, each with a thread here that speaks to it; used in a `with` block, which ends them."""

    def __init__(self, tokenizers: TokenizerPair, max_len: int, size: int) -> None:
        sides = [tokenizers.source] if tokenizers.joint else [tokenizers.source, tokenizers.target]
        orders = json.dumps({"tokenizers": [side.as_text() for side in sides], "max_len": max_len}).encode()
        self._workers = [_Worker(orders) for _ in range(size)]
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(size)

    def __enter__(self) -> _Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.process.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.close()

    def encode(self, chunks: Iterable[Sequence[Pair]]) -> Iterator[Encoded]:
        """Have chunks encoded, and hand them on in the order they came."""
        waiting: deque[Future[Encoded]] = deque()
        for chunk in chunks:
            waiting.append(self._threads.submit(self._encode, chunk))
            if len(waiting) > 2 * len(self._workers):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _encode(self, chunk: Sequence[Pair]) -> Encoded:
        worker = self._idle.get()
        try:
            return worker.encode(chunk)
        finally:
            self._idle.put(worker)


class _Worker:
    """One process, seen from outside."""

    def __init__(self, orders: bytes) -> None:
        self._orders: bytes | None = orders
        # Not `-m` alone: it would look for modules in the folder the user happens to be in.
        places = os.pathsep.join(os.path.abspath(place) for place in sys.path)  # noqa: PTH100
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "clearhead.data.crew"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": places, "TOKENIZERS_PARALLELISM": "false"},
            start_new_session=True,  # Ctrl-C is for the process that started us.
        )

    def encode(self, chunk: Sequence[Pair]) -> Encoded:
        """Have one chunk encoded, and wait for it."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        try:
            if self._orders is not None:
                _send(stdin, self._orders)
                self._orders = None
            _send(stdin, json.dumps(chunk).encode())
            *parts, dropped = (_receive(stdout) for _ in Encoded._fields)
        except (OSError, EOFError):
            raise ClearheadError(f"a process that tokenises {_end_of(self.process)}") from None
        if int(dropped) < 0:
            raise DataError(parts[0].decode())
        return Encoded(*parts, dropped=int(dropped))  # type: ignore[arg-type, misc]

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        self.process.wait()


def _end_of(process: subprocess.Popen[bytes]) -> str:
    code = process.wait()
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}: if memory ran out, set data.workers to a smaller number"
    return f"ended with exit code {code}: set data.workers to 1 to go without"


def _send(file: IO[bytes], data: bytes) -> None:
    file.write(_SIZE.pack(len(data)))
    file.write(data)
    file.flush()


def _receive(file: IO[bytes]) -> bytes:
    size = file.read(_SIZE.size)
    if len(size) < _SIZE.size:
        raise EOFError
    (expected,) = _SIZE.unpack(size)
    data = file.read(expected)
    if len(data) < expected:
        raise EOFError
    return data


def _work(inbox: IO[bytes], outbox: IO[bytes]) -> None:
    """Encode chunk after chunk until there are no more."""
    orders = json.loads(_receive(inbox))
    sides = [Tokenizer.from_text(text) for text in orders["tokenizers"]]
    tokenizers = TokenizerPair(sides[0], sides[-1])
    while True:
        chunk = json.loads(_receive(inbox))
        try:
            found = encode_chunk(chunk, tokenizers, orders["max_len"])
        except DataError as error:
            found = Encoded(str(error).encode(), b"", b"", b"", b"", -1)
        for part in (*found[:-1], str(found.dropped).encode()):
            _send(outbox, part)


if __name__ == "__main__":
    with contextlib.suppress(EOFError, BrokenPipeError):
        _work(sys.stdin.buffer, sys.stdout.buffer)
