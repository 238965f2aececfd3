"""A file or standard input comes in, plain or gzip; its lines or its text go out, read once, so that a pipe will do.

Training data goes through `clearhead.data.lines`, which leaves lines out; here every line counts.
"""

from __future__ import annotations

import gzip
import io
import select
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from clearhead.errors import DataError, MissingInputError

MAX_LINE_BYTES = 1 << 20
MAX_TEXT_BYTES = 1 << 24
GZIP = b"\x1f\x8b"
BLOCK = 1 << 16
PAUSE_SECONDS = 0.05
"""When nothing has come for so long, whoever waits for an answer gets it."""

Answer = TypeVar("Answer")


def read_lines(path: Path | None) -> Iterator[str]:
    """The lines of a file or of standard input, split on line feeds only, so that output and input stay aligned."""
    return (line for line in read_as_they_come(path) if line is not None)


def read_as_they_come(path: Path | None) -> Iterator[str | None]:
    """The same lines, and a None where the input pauses after some: a pipe that stays open, somebody who types."""
    name = _name(path)
    number = 0
    with _unpacked(path) as stream:
        is_pausing, has_news, rest = _pauses(stream), False, b""
        try:
            while block := stream.read1(BLOCK):
                *whole, rest = (rest + block).split(b"\n")
                for raw in whole:
                    number, has_news = number + 1, True
                    yield _decoded(raw, number, name)
                if len(rest) > MAX_LINE_BYTES:
                    raise _too_long(name, number + 1)
                if has_news and is_pausing():
                    has_news = False
                    yield None
            if rest:
                number += 1
                yield _decoded(rest, number, name)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{name} after line {number:,}: the gzip data is damaged: {error}") from None


def answered(
    lines: Iterable[str | None], answers: Callable[[Iterator[str | None]], Iterator[Answer]]
) -> Iterator[tuple[str, Answer]]:
    """Each line with its answer; once all that have come are answered, what was written goes out."""
    waiting: deque[str] = deque()

    def remembered() -> Iterator[str | None]:
        for line in lines:
            if line is not None:
                waiting.append(line)
            yield line

    for answer in answers(remembered()):
        yield waiting.popleft(), answer
        if not waiting:
            sys.stdout.flush()


def _decoded(raw: bytes, number: int, name: str) -> str:
    if len(raw) > MAX_LINE_BYTES:
        raise _too_long(name, number)
    try:
        return raw.removesuffix(b"\r").decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        raise _not_utf8(name, number, raw) from None


def _not_utf8(name: str, number: int, raw: bytes) -> DataError:
    from clearhead.data.lines import chinese_encoding

    encoding = chinese_encoding(raw)
    way_out = f", but {encoding}; convert it with: iconv -f {encoding} -t UTF-8" if encoding else ""
    return DataError(f"{name} line {number:,} is not UTF-8{way_out}")


def _too_long(name: str, number: int) -> DataError:
    return DataError(f"{name} line {number:,} is longer than a megabyte: split it into sentences")


def _pauses(stream: io.BufferedReader | gzip.GzipFile) -> Callable[[], bool]:
    """Whether nothing is there to be read, and for a moment nothing comes; never, where the system cannot tell."""
    try:
        if isinstance(stream, gzip.GzipFile):
            return lambda: False
        descriptor = stream.fileno()
        select.select([descriptor], [], [], 0)
    except (OSError, ValueError):
        return lambda: False
    return lambda: not select.select([descriptor], [], [], PAUSE_SECONDS)[0]


def read_text(path: Path | None) -> str:
    """The whole text of a file or of standard input, with line feeds at its line ends."""
    name = _name(path)
    with _unpacked(path) as stream:
        try:
            raw = stream.read(MAX_TEXT_BYTES + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{name}: the gzip data is damaged: {error}") from None
    if len(raw) > MAX_TEXT_BYTES:
        raise DataError(f"{name} has more than {MAX_TEXT_BYTES >> 20} megabytes: give its last part")
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise _not_utf8(name, raw.count(b"\n", 0, error.start) + 1, raw) from None


def _name(path: Path | None) -> str:
    return "standard input" if path is None else str(path)


@contextmanager
def _unpacked(path: Path | None) -> Iterator[io.BufferedReader | gzip.GzipFile]:
    with _opened(path) as file:
        yield gzip.GzipFile(fileobj=file) if file.peek(len(GZIP)).startswith(GZIP) else file


def _opened(path: Path | None) -> AbstractContextManager[io.BufferedReader]:
    if path is None:
        # Whoever calls us from Python may have put something simpler in its place.
        given: Any = sys.stdin.buffer
        return nullcontext(given if isinstance(given, io.BufferedReader) else io.BufferedReader(given))
    try:
        return path.open("rb")
    except OSError as error:
        raise MissingInputError(f"cannot read {path}: {error.strerror}") from None
