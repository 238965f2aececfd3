r"""A text file, plain or gzip, comes in; its text goes out as it runs on, in passages that need little memory.

Nothing is cut off and nothing is joined: all passages end to end are the text of the file. Only what is no text is left
out, line by line, and counted: bytes that are not UTF-8, and control characters. CRLF becomes LF.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from clearhead.data.lines import MAX_LINE_BYTES, TextFile, clean_text, decode
from clearhead.data.reasons import Reason
from clearhead.errors import DataError

LONGEST_PIECE = 1 << 16
"""Characters without a good place to cut after which any place must do."""

# Before a single line end, or failing that a single space, with no space around it: no token reaches over that.
_AT_A_LINE = re.compile(r"(?<=\S)(?=\n\S)")
_AT_A_SPACE = re.compile(r"(?<=\S)(?= \S)")


class RunningText:
    """One text that can be read many times in constant memory; counts describe the latest reading."""

    def __init__(self, path: Path) -> None:
        self.file = TextFile(path)
        self.left_out: dict[Reason, tuple[int, int]] = {}
        """For each reason how many lines were left out, and the first of them."""
        self._has_lone_cr = False

    def passages(self) -> Iterator[str]:
        """The whole text, some of it at a time."""
        file, self.left_out = self.file, {}
        file.num_lines = file.num_crlf = 0
        self._has_lone_cr = is_open = has_text = False
        for block in _at_line_ends(file.text_blocks()):
            text = clean_text(block)
            if text is None:
                text = self._mended(block, is_open)
            else:
                file.num_lines += text.count("\n") + (not text.endswith("\n")) - is_open
            is_open = not block.endswith(b"\n")
            has_text = has_text or bool(text)
            if text:
                yield text
        if self._has_lone_cr and file.num_lines == 1:
            file.refuse_lone_cr()
        if not has_text:
            raise DataError(f"{file.path} has no text: {self._complaint()}")

    def notes(self) -> list[str]:
        """What the latest reading found and repaired."""
        found = self.file.notes()
        return [*found, f"{self.file.path}: left out {self._complaint()}"] if self.left_out else found

    def _mended(self, block: bytes, is_open: bool) -> str:
        """The lines of a block that are text, with LF at their ends; `is_open` if the first one began in another."""
        file, kept = self.file, []
        lines = block.split(b"\n")
        for place, line in enumerate(lines):
            is_last = place == len(lines) - 1
            if is_last and not line:
                break
            file.num_lines += not (is_open and place == 0)
            if line.endswith(b"\r"):
                file.num_crlf += 1
                line = line[:-1]
            self._has_lone_cr = self._has_lone_cr or b"\r" in line
            text = decode(line)
            if isinstance(text, Reason):
                count, first = self.left_out.get(text, (0, file.num_lines))
                self.left_out[text] = count + 1, first
            else:
                kept.append(text if is_last else f"{text}\n")
        return "".join(kept)

    def _complaint(self) -> str:
        counts = (
            f"{count:,} lines ({reason.label}, the first is line {first:,})"
            if count > 1
            else f"1 line ({reason.label}, line {first:,})"
            for reason, (count, first) in self.left_out.items()
        )
        return ", ".join(counts) or "it holds nothing but a byte order mark"


def stretch(passages: Iterable[str], start: int, end: int | None = None) -> Iterator[str]:
    """The characters of a text from `start` up to `end`, counted from 0.

    >>> list(stretch(["abc", "def", "ghi"], 2, 7))
    ['c', 'def', 'g']
    """
    place = 0
    for passage in passages:
        part = passage[max(0, start - place) : None if end is None else max(0, end - place)]
        place += len(passage)
        if part:
            yield part
        if end is not None and place >= end:
            return


def pieces(passages: Iterable[str]) -> Iterator[str]:
    r"""The same text cut into short pieces whose tokens, end to end, are those of the whole text.

    >>> list(pieces(["one\ntwo\n", "\nthree\n fo", "ur\n"]))
    ['one', '\ntwo\n\nthree\n four\n']
    """
    rest = ""
    for passage in passages:
        *whole, rest = _AT_A_LINE.split(rest + passage)
        yield from whole
        while len(rest) > LONGEST_PIECE:
            cut = _last(_AT_A_SPACE, rest) or LONGEST_PIECE
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


def _last(pattern: re.Pattern[str], text: str) -> int | None:
    """The last place in the longest piece of a text where a pattern is."""
    return max((found.start() for found in pattern.finditer(text, 0, LONGEST_PIECE)), default=None)


def _at_line_ends(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks cut behind line ends, or where a line is too long, between two characters."""
    rest = b""
    for block in blocks:
        rest += block
        end = rest.rfind(b"\n") + 1
        if not end and len(rest) > MAX_LINE_BYTES:
            end = len(rest) - _unfinished(rest)
        if end:
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest


def _unfinished(text: bytes) -> int:
    """How many bytes at the end of a text may be the beginning of a character or of CRLF.

    >>> _unfinished("aü".encode()[:-1]), _unfinished("aü".encode()), _unfinished(b"a\\r")
    (1, 0, 1)
    """
    if text.endswith(b"\r"):
        return 1
    for size in range(1, min(3, len(text)) + 1):
        byte = text[-size]
        if (
            byte & 0xC0 != 0x80
        ):  # No byte inside a character: the beginning of one with this many bytes, or a whole one.
            needed = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4 if byte & 0xF8 == 0xF0 else 1
            return size if needed > size else 0
    return 0
