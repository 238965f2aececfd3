"""A file or standard input comes in, plain or gzip; its lines or its text go out, read once, so that a pipe will do.

Training data goes through `clearhead.data.lines`, which leaves lines out; here every line counts.
"""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

from clearhead.errors import DataError, MissingInputError

MAX_LINE_BYTES = 1 << 20
MAX_TEXT_BYTES = 1 << 24
GZIP = b"\x1f\x8b"


def read_lines(path: Path | None) -> Iterator[str]:
    """The lines of a file or of standard input, split on line feeds only, so that output and input stay aligned."""
    name = _name(path)
    number = 0
    with _unpacked(path) as stream:
        try:
            while raw := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(raw) > MAX_LINE_BYTES:
                    raise DataError(f"{name} line {number:,} is longer than a megabyte: split it into sentences")
                encoding = "utf-8-sig" if number == 1 else "utf-8"
                yield raw.removesuffix(b"\n").removesuffix(b"\r").decode(encoding)
        except UnicodeDecodeError:
            raise DataError(f"{name} line {number:,} is not UTF-8") from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{name} after line {number:,}: the gzip data is damaged: {error}") from None


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
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(f"{name} line {line:,} is not UTF-8") from None


def _name(path: Path | None) -> str:
    return "standard input" if path is None else str(path)


@contextmanager
def _unpacked(path: Path | None) -> Iterator[BinaryIO]:
    with _opened(path) as file:
        is_gzip = isinstance(file, io.BufferedReader) and file.peek(len(GZIP)).startswith(GZIP)
        yield gzip.GzipFile(fileobj=file) if is_gzip else file  # type: ignore[misc]


def _opened(path: Path | None) -> AbstractContextManager[BinaryIO]:
    if path is None:
        return nullcontext(sys.stdin.buffer)
    try:
        return path.open("rb")
    except OSError as error:
        raise MissingInputError(f"cannot read {path}: {error.strerror}") from None
