"""A text file, plain or gzip, comes in; its lines go out one by one, each as text or as the reason why it is not text.

Bytes are split on b"\\n" and nothing else: text mode and `str.splitlines` also break at U+2028, U+0085, \\x0b, \\x0c or
a lone CR, and one such break in one of two parallel files pairs every later line with the wrong partner.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

from clearhead.data.reasons import Reason
from clearhead.errors import DataError, MissingInputError, StorageError

MAX_LINE_BYTES = 1 << 20
"""A longer line is read past, not into memory."""

_BLOCK_BYTES = 1 << 20
_SNIFFED_BYTES = 1 << 16
_UTF8_MARK = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_COMMON = frozenset("的一是不了我在有他这个们你好人来到说")
_PACKED = {
    _GZIP: "gzip inside gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"PAR1": "Parquet",
}
# Tab, \x0b and \x0c count as text; a CR that is left after the line end was removed does not.
_CONTROL = re.compile("[\x00-\x08\x0d-\x1f\x7f]")
_CONTROL_BYTES = bytes([*range(0x09), *range(0x0D, 0x20), 0x7F])


class TextFile:
    """One text file that can be read many times in constant memory; counts describe the latest reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_lines = 0
        self.num_crlf = 0
        self.has_mark = False
        self.share_read = 0.0
        """How much of the file the latest reading has taken in, from 0 to 1."""
        self._has_lone_cr = False

    def lines(self) -> Iterator[str | Reason]:
        """Every line without its line end, as text or as what is wrong with it."""
        for bunch in self._bunches():
            text = _plain_text(bunch)
            if text is None:
                for raw in self._raw(bunch):
                    yield raw if isinstance(raw, Reason) else decode(raw)
            else:
                lines = text.split("\n")
                self.num_lines += len(lines)
                self._has_lone_cr = False
                yield from lines

    def raw_lines(self) -> Iterator[bytes | Reason]:
        """Every line without its line end, as bytes; one over MAX_LINE_BYTES is only reported."""
        for bunch in self._bunches():
            yield from self._raw(bunch)

    def _bunches(self) -> Iterator[bytes]:
        """Many whole lines at a time; the end of the last of them is cut off."""
        self.num_lines = self.num_crlf = 0
        self._has_lone_cr = False
        yield from _whole_lines(self.text_blocks())
        if self._has_lone_cr:
            self.refuse_lone_cr()

    def _raw(self, bunch: bytes) -> Iterator[bytes | Reason]:
        for line in bunch.split(b"\n"):
            self.num_lines += 1
            if line.endswith(b"\r"):
                self.num_crlf += 1
                line = line[:-1]
            self._has_lone_cr = self.num_lines == 1 and b"\r" in line
            yield line if len(line) <= MAX_LINE_BYTES else Reason.TOO_LONG

    def refuse_lone_cr(self) -> NoReturn:
        """Say what to do with a file that has no line ends but CR."""
        advice = f"convert it with: tr '\\r' '\\n' < {self.path} > NEW"
        raise DataError(f"{self.path} ends its lines with CR only (old Mac); {advice}")

    def digest(self) -> str:
        """The sha256 of the file as it lies on disk."""
        with open_bytes(self.path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def notes(self) -> list[str]:
        """What the latest reading found and repaired."""
        notes = []
        if self.has_mark:
            notes.append(f"{self.path}: removed the byte order mark at the start")
        if self.num_crlf:
            share = f"{self.num_crlf:,} of {self.num_lines:,} lines"
            notes.append(f"{self.path}: CRLF at the end of {share}; the CR was removed")
        return notes

    def text_blocks(self) -> Iterator[bytes]:
        """The file as it is, unpacked, in blocks; an empty one, or one that is plainly no UTF-8, is refused."""
        blocks = self._blocks()
        first = next(blocks, b"")
        _refuse_other_formats(self.path, first[:_SNIFFED_BYTES])
        self.has_mark = first.startswith(_UTF8_MARK)
        first = first.removeprefix(_UTF8_MARK)
        second = b"" if first else next(blocks, b"")
        if not first and not second:
            raise DataError(f"{self.path} is empty")
        yield first + second
        yield from blocks

    def _blocks(self) -> Iterator[bytes]:
        """Raw blocks, unpacked; `read1` hands over all that could be unpacked before a gzip file breaks off."""
        with open_bytes(self.path) as file:
            is_gzip = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            unpacked = gzip.GzipFile(fileobj=file, mode="rb") if is_gzip else file
            size = max(1, self.path.stat().st_size)
            try:
                while block := unpacked.read1(_BLOCK_BYTES):
                    self.share_read = min(1.0, file.tell() / size)
                    yield block
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                what = "is cut short" if isinstance(error, EOFError) else f"is damaged ({error})"
                raise DataError(
                    f"{self.path}: the gzip data {what} after line {self.num_lines}; fetch or compress it again"
                ) from None
            except OSError as error:
                raise StorageError(f"{self.path} cannot be read after line {self.num_lines}: {error}") from None


def without_controls(text: str) -> str:
    r"""A text with a space in the place of NUL and its like.

    >>> without_controls("good\x10 film\tand\r")
    'good  film\tand '
    """
    return text if text.isprintable() else _CONTROL.sub(" ", text)


def open_bytes(path: Path) -> io.BufferedReader:
    """Open a regular file for reading, or say in one line why that is not possible."""
    try:
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            raise MissingInputError(f"{path} is a directory, not a file")
        if not stat.S_ISREG(kind):
            raise MissingInputError(f"{path} is not a regular file, and data is read more than once: save it first")
        return path.open("rb")
    except (FileNotFoundError, NotADirectoryError):
        raise MissingInputError(f"there is no file {path}") from None
    except PermissionError:
        raise MissingInputError(f"{path} cannot be read: permission denied") from None
    except (OSError, ValueError) as error:
        raise MissingInputError(f"{path} cannot be read: {error}") from None


def _whole_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks cut at line ends; of a line over MAX_LINE_BYTES only that much and a little more is kept."""
    rest = b""
    for block in blocks:
        lines, end, rest = (rest + block).rpartition(b"\n")
        if end:
            yield lines
        rest = rest[: MAX_LINE_BYTES + 2]
    if rest:
        yield rest


def _plain_text(bunch: bytes) -> str | None:
    """Many lines at once, if nothing is the matter with any of them."""
    # Only the first line can have begun in an earlier block, so only it can be too long.
    return None if len(bunch.partition(b"\n")[0]) > MAX_LINE_BYTES else clean_text(bunch)


def clean_text(bunch: bytes) -> str | None:
    """Bytes as text, if they are UTF-8 without control characters."""
    if len(bunch.translate(None, _CONTROL_BYTES)) != len(bunch):
        return None
    try:
        return bunch.decode("utf-8")
    except UnicodeDecodeError:
        return None


def decode(raw: bytes) -> str | Reason:
    """One line as text, or what is wrong with it."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return Reason.BAD_ENCODING
    if text.isprintable() or not _CONTROL.search(text):
        return text
    return Reason.CONTROL


def _refuse_other_formats(path: Path, start: bytes) -> None:
    for magic, name in _PACKED.items():
        if start.startswith(magic):
            raise DataError(f"{path} is {name} data, not text; unpack it first (plain text and single gzip are read)")
    marks = [name for mark, name in _MARKS.items() if start.startswith(mark)]
    encoding = marks[0] if marks else _wide_encoding(start) or chinese_encoding(start)
    if encoding == "zeros":
        raise DataError(f"{path} holds mostly zero bytes: it is damaged, or not text")
    if encoding:
        raise DataError(f"{path} is {encoding}; convert it with: iconv -f {encoding} -t UTF-8 {path} > NEW")


def chinese_encoding(start: bytes) -> str | None:
    """Recognise GB18030, of which GBK and GB2312 are parts: hardly a line is UTF-8, and what it says is Chinese."""
    *lines, rest = start.split(b"\n")
    lines = [line for line in lines or [rest] if not line.isascii()]
    if sum(decode(line) is not Reason.BAD_ENCODING for line in lines) > 0.1 * len(lines):
        return None
    try:
        # What is cut off at the end is no mistake.
        text = codecs.getincrementaldecoder("gb18030")().decode(start)
    except UnicodeDecodeError:
        return None
    signs = [sign for sign in text if "\u4e00" <= sign <= "\u9fff"]
    # Other encodings, taken for this one, give Chinese characters too, but rare ones.
    is_common = sum(sign in _COMMON for sign in signs) > 0.03 * len(signs)
    return "GB18030" if is_common and len(signs) > 0.1 * len(text) else None


def _wide_encoding(start: bytes) -> str | None:
    """Recognise UTF-16 and UTF-32 without a mark: western text is half NUL bytes, and any line end has one."""
    num_nul = start.count(0)
    if num_nul < 2:
        return None
    pairs = len(start) // 2
    even, odd = start[0 : 2 * pairs : 2].count(0) / pairs, start[1 : 2 * pairs : 2].count(0) / pairs
    if num_nul > 0.9 * len(start):
        return "zeros"
    if min(even, odd) > 0.4:
        return "UTF-32LE" if start[0] else "UTF-32BE"
    if max(even, odd) > 0.4 and min(even, odd) < 0.1:
        return "UTF-16LE" if odd > even else "UTF-16BE"
    low, high = start[0 : 2 * pairs : 2], start[1 : 2 * pairs : 2]
    for name, newline, other in (("UTF-16LE", low, high), ("UTF-16BE", high, low)):
        ends = [other[i] for i, byte in enumerate(newline) if byte == 0x0A]
        if len(ends) > 1 and not any(ends) and not _is_utf8(start):
            return name
    return None


def _is_utf8(start: bytes) -> bool:
    try:
        start.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True
