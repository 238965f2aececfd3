"""Running text: nothing is cut off, nothing is joined, and what is no text is counted."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data import lines, passages
from clearhead.data.passages import RunningText, pieces, stretch
from clearhead.data.reasons import Reason
from clearhead.errors import DataError, MissingInputError
from clearhead.text import Tokenizer, TokenizerConfig

TEXT = "Wörter und\nWörter\n\n  eingerückt\n我吃了\n\n\nno end"


def written(folder: Path, content: bytes, name: str = "a.txt") -> RunningText:
    (folder / name).write_bytes(content)
    return RunningText(folder / name)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("text", [TEXT, TEXT + "\n", "one line", "\n\n\n", "a\n", "tab\there\x0c\n"])
def test_passages_end_to_end_are_the_file(tmp_path: Path, text: str, packed: bool) -> None:
    content = text.encode()
    running = written(tmp_path, gzip.compress(content, mtime=0) if packed else content)
    for _ in range(2):
        assert "".join(running.passages()) == text
    assert running.file.num_lines == text.count("\n") + (not text.endswith("\n"))
    assert running.notes() == []


def test_blocks_may_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_BLOCK_BYTES", 3)
    monkeypatch.setattr(passages, "MAX_LINE_BYTES", 4)
    running = written(tmp_path, TEXT.encode())
    found = list(running.passages())
    assert "".join(found) == TEXT
    assert len(found) > 5
    assert running.file.num_lines == TEXT.count("\n") + 1
    assert running.notes() == []


def test_a_line_of_any_length_is_kept(tmp_path: Path) -> None:
    text = "ü" * (lines.MAX_LINE_BYTES + 7) + "\nend"
    running = written(tmp_path, text.encode())
    assert "".join(running.passages()) == text
    assert running.file.num_lines == 2


def test_crlf_and_a_byte_order_mark_are_mended_and_told(tmp_path: Path) -> None:
    running = written(tmp_path, b"\xef\xbb\xbfone\r\ntwo\r\nthree")
    assert "".join(running.passages()) == "one\ntwo\nthree"
    assert running.notes() == [
        f"{tmp_path / 'a.txt'}: removed the byte order mark at the start",
        f"{tmp_path / 'a.txt'}: CRLF at the end of 2 of 3 lines; the CR was removed",
    ]


def test_lines_that_are_no_text_are_left_out_and_told(tmp_path: Path) -> None:
    running = written(tmp_path, b"one\ntwo \xff\nthree\nfour\x00\nfive\xff\n")
    assert "".join(running.passages()) == "one\nthree\n"
    assert running.left_out == {Reason.BAD_ENCODING: (2, 2), Reason.CONTROL: (1, 4)}
    assert running.notes() == [
        f"{tmp_path / 'a.txt'}: left out 2 lines (bad encoding, the first is line 2), "
        "1 line (control characters, line 4)"
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"\xff\n\xff\n", r"has no text: 2 lines \(bad encoding, the first is line 1\)"),
        (b"one\rtwo\rthree\r", r"ends its lines with CR only \(old Mac\); convert it with: tr"),
        (b"one\rtwo\rthree", r"ends its lines with CR only \(old Mac\)"),
        ("text\n".encode("utf-16"), "is UTF-16; convert it with: iconv"),
        (b"PK\x03\x04rest", "is zip data, not text"),
        (gzip.compress(b"text " * 999, mtime=0)[:-20], "the gzip data is cut short"),
    ],
)
def test_what_is_no_text_at_all_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(written(tmp_path, content).passages())


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="there is no file"):
        list(RunningText(tmp_path / "b.txt").passages())


@given(st.lists(st.text("ab\n ", max_size=5)), st.integers(0, 12), st.integers(0, 12))
def test_a_stretch_is_a_slice(parts: list[str], start: int, end: int) -> None:
    text = "".join(parts)
    assert "".join(stretch(parts, start, end)) == text[start:end]
    assert "".join(stretch(parts, start)) == text[start:]


@pytest.fixture(scope="module")
def tokenizers() -> list[Tokenizer]:
    texts = ["aa bb\nab\n\n b a'b's\n  ", "我 我吃\nab ab\tab", "ab 12\n34"] * 5
    configs = [TokenizerConfig(kind=kind, vocab_size=300) for kind in ("bpe", "char", "byte")]
    return [Tokenizer.train(config, texts) for config in configs]


@settings(max_examples=60)
@given(parts=st.lists(st.text("ab'\n 1我\t", max_size=12), max_size=8))
def test_the_tokens_of_pieces_are_those_of_the_text(tokenizers: list[Tokenizer], parts: list[str]) -> None:
    text = "".join(parts)
    cut = list(pieces(parts))
    assert "".join(cut) == text
    for tokenizer in tokenizers:
        assert [index for row in tokenizer.encode_batch(cut) for index in row] == tokenizer.encode(text)


def test_a_text_without_a_good_place_to_cut_is_cut_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "LONGEST_PIECE", 10)
    text = "longer than ten " + "x" * 35 + "\n\n" + "y" * 12
    cut = list(pieces([text[:20], text[20:]]))
    assert "".join(cut) == text
    assert max(map(len, cut)) <= 10
    assert cut[0] == "longer"
