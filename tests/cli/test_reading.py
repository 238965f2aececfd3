"""Lines for translation and scoring: none lost, none added, and a bad one named."""

from __future__ import annotations

import gzip
import io
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.cli import reading
from clearhead.cli.reading import MAX_LINE_BYTES, answered, read_as_they_come, read_lines, read_text
from clearhead.errors import DataError, MissingInputError
from clearhead.text.turns import next_turn


def lines_of(content: bytes) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))
        return list(read_lines(None))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\ufeff")), max_size=8))
def test_any_lines_come_back_as_they_are(lines: list[str]) -> None:
    content = "".join(f"{line}\n" for line in lines).encode()
    assert lines_of(content) == lines
    assert lines_of(content.replace(b"\n", b"\r\n")) == lines
    assert lines_of(gzip.compress(content)) == lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\rb\n", ["a\rb"]),
        ("\ufeffa\n\ufeffb\n".encode(), ["a", "\ufeffb"]),
        ("a\u2028b\x85c\n".encode(), ["a\u2028b\x85c"]),
    ],
)
def test_a_file_and_standard_input_are_read_alike(content: bytes, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(content)
    (tmp_path / "packed").write_bytes(gzip.compress(content))
    assert lines_of(content) == list(read_lines(tmp_path / "plain")) == list(read_lines(tmp_path / "packed")) == lines


def test_a_pipe_will_do(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a\nb\n",))
    writer.start()
    assert list(read_lines(pipe)) == ["a", "b"]
    writer.join()


def test_where_a_pipe_pauses_nobody_waits_for_more(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as pipe, os.fdopen(write_end, "wb", buffering=0) as writer:
        coming = read_as_they_come(Path(f"/dev/fd/{pipe.fileno()}"))
        writer.write(b"a\nb\nhalf a ")
        assert [next(coming), next(coming), next(coming)] == ["a", "b", None]
        writer.write(b"line\n")
        assert [next(coming), next(coming)] == ["half a line", None]
        writer.write(b"c")
        writer.close()
        assert list(coming) == ["c"]


def test_a_file_never_pauses(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"line\n" * 40_000)
    assert list(read_as_they_come(tmp_path / "a")) == ["line"] * 40_000


def test_what_is_answered_goes_out_before_more_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(sys.stdout, "flush", lambda: heard.append("out"))

    def lines() -> Iterator[str | None]:
        for line in ("a", "b", None, "c"):
            heard.append(f"read {line}")
            yield line

    def answers(some: Iterator[str | None]) -> Iterator[str]:
        while turn := next_turn(some, 9):
            yield from (line.upper() for line in turn)

    found = answered(lines(), answers)
    assert list(found) == [("a", "A"), ("b", "B"), ("c", "C")]
    assert heard == ["read a", "read b", "read None", "out", "read c", "out"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb\xff\n", "input line 2 is not UTF-8"),
        (
            "a\n我吃了一个苹果\n".encode("GBK"),
            "input line 2 is not UTF-8, but GB18030; convert it with: iconv",
        ),
        (b"a\n\xed\xa0\x80\n", "input line 2 is not UTF-8"),
        (b"a\n" * 1500 + b"\xc3", "input line 1,501 is not UTF-8"),
        (b"a\n" + b"x" * (MAX_LINE_BYTES + 1), "input line 2 is longer than a megabyte: split it into sentences"),
        (gzip.compress(b"a\n" * 9000, mtime=0)[:-9], r"input after line \d.*: the gzip data is damaged"),
        (gzip.compress(b"a\n", mtime=0)[:-8] + bytes(8), r"input after line 1: the gzip data is damaged"),
    ],
)
def test_what_cannot_be_read_is_named(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"standard {message}"):
        lines_of(content)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"cannot read .*nowhere: No such file or directory"):
        list(read_lines(tmp_path / "nowhere"))
    with pytest.raises(MissingInputError, match=r"cannot read .*: Is a directory"):
        list(read_lines(tmp_path))


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"", ""), (b"a\r\nb\n\n", "a\nb\n\n"), ("\ufeff我\n".encode(), "我\n"), (b"no end", "no end")],
)
def test_a_whole_text_is_read_as_it_is(content: bytes, text: str, tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(content)
    (tmp_path / "packed").write_bytes(gzip.compress(content))
    assert read_text(tmp_path / "plain") == read_text(tmp_path / "packed") == text


def test_a_text_that_cannot_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad").write_bytes(b"one\ntwo \xff\n")
    with pytest.raises(DataError, match=r"bad line 2 is not UTF-8"):
        read_text(tmp_path / "bad")
    (tmp_path / "cut").write_bytes(gzip.compress(b"text" * 99)[:-9])
    with pytest.raises(DataError, match="the gzip data is damaged"):
        read_text(tmp_path / "cut")
    with pytest.raises(MissingInputError, match="cannot read"):
        read_text(tmp_path / "absent")
    monkeypatch.setattr(reading, "MAX_TEXT_BYTES", 3)
    with pytest.raises(DataError, match="give its last part"):
        read_text(tmp_path / "bad")
