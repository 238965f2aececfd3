"""Files become lines, and only b"\\n" ends one."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data import lines
from clearhead.data.lines import MAX_LINE_BYTES, TextFile
from clearhead.data.reasons import Reason
from clearhead.errors import DataError, MissingInputError, StorageError

GERMAN = "Grüß Gott\nzwei Häuser\nund noch ein Satz\n" * 20
CHINESE = "我吃了一个苹果\n你好世界\n他们中的任何一位我都不认识\n" * 20


def written(tmp_path: Path, content: bytes, name: str = "text") -> TextFile:
    path = tmp_path / name
    path.write_bytes(content)
    return TextFile(path)


def complaint(file: TextFile, error: type[Exception] = DataError) -> str:
    with pytest.raises(error) as caught:
        list(file.lines())
    message = str(caught.value)
    assert str(file.path) in message and "\n" not in message
    return message


@pytest.mark.parametrize("block_bytes", [1, 2, 7, 1 << 20])
@pytest.mark.parametrize("content", [b"a", b"a\n", b"a\nb", b"\n", b"\n\n", b"a\n\nb\n", b"a\r\nb\r\n", b"\r\n"])
def test_lines_are_what_a_split_on_newline_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int, content: bytes
) -> None:
    monkeypatch.setattr(lines, "_BLOCK_BYTES", block_bytes)
    expected = content.decode().removesuffix("\n").split("\n")
    assert list(written(tmp_path, content).lines()) == [line.removesuffix("\r") for line in expected]


@given(
    content=st.lists(st.sampled_from([b"a", b"\xc3\xa4", b"\xff", b"\r", b"\x01", b"\n", b"\n", b"xyz "]), min_size=1),
    block_bytes=st.integers(1, 9),
)
def test_lines_read_in_bunches_equal_lines_read_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, content: list[bytes], block_bytes: int
) -> None:
    file = written(tmp_path_factory.mktemp("lines"), b"first\n" + b"".join(content))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_BLOCK_BYTES", block_bytes)
        patch.setattr(lines, "MAX_LINE_BYTES", 9)
        bunched, counts = list(file.lines()), (file.num_lines, file.num_crlf)
        patch.setattr(lines, "_plain_text", lambda bunch: None)
        assert bunched == list(file.lines())
    assert counts == (file.num_lines, file.num_crlf) == (len(bunched), file.num_crlf)
    assert file.share_read == 1.0


@settings(deadline=None)
@given(st.lists(st.text(st.characters(blacklist_categories=["Cc", "Cs"])), min_size=1))
def test_every_unicode_line_comes_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    texts = ["first", *texts]
    file = written(tmp_path_factory.mktemp("lines"), "".join(f"{text}\n" for text in texts).encode())
    assert list(file.lines()) == texts
    assert file.num_lines == len(texts)


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\t", "\u3000", "\ufeff"])
def test_other_separators_are_plain_text(tmp_path: Path, sign: str) -> None:
    assert list(written(tmp_path, f"a{sign}b\nc\n".encode()).lines()) == [f"a{sign}b", "c"]


@pytest.mark.parametrize("sign", ["\0", "\x01", "\x1b", "\x1c", "\x1e", "\x7f"])
def test_control_characters_are_reported(tmp_path: Path, sign: str) -> None:
    assert list(written(tmp_path, f"good\na{sign}b\nc\n".encode()).lines()) == ["good", Reason.CONTROL, "c"]


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xe4\xb8", b"\xed\xa0\x80", b"\xc0\xaf", b"Gr\xfc\xdfe"])
def test_invalid_utf8_is_reported_and_costs_one_line(tmp_path: Path, bad: bytes) -> None:
    assert list(written(tmp_path, b"a\nx " + bad + b"\nb\n").lines()) == ["a", Reason.BAD_ENCODING, "b"]


def test_a_byte_order_mark_is_removed_and_noted(tmp_path: Path) -> None:
    file = written(tmp_path, "\ufeffa\nb\n".encode())
    assert list(file.lines()) == ["a", "b"]
    assert file.notes() == [f"{file.path}: removed the byte order mark at the start"]


def test_crlf_is_removed_once_and_counted(tmp_path: Path) -> None:
    file = written(tmp_path, b"a\r\nb\r\nc\nd\r\r\n")
    assert list(file.lines()) == ["a", "b", "c", Reason.CONTROL]
    assert file.notes() == [f"{file.path}: CRLF at the end of 3 of 4 lines; the CR was removed"]


def test_a_file_can_be_read_again_and_counts_start_over(tmp_path: Path) -> None:
    file = written(tmp_path, b"a\r\nb\n")
    assert list(file.lines()) == list(file.lines()) == ["a", "b"]
    assert (file.num_lines, file.num_crlf) == (2, 1)


@pytest.mark.parametrize("name", ["text", "text.gz"])
@pytest.mark.parametrize("packed", [True, False])
def test_gzip_is_recognised_by_content_not_by_name(tmp_path: Path, name: str, packed: bool) -> None:
    content = gzip.compress(GERMAN.encode()) if packed else GERMAN.encode()
    assert list(written(tmp_path, content, name).lines()) == GERMAN.split("\n")[:-1]


def test_joined_gzip_files_are_read_to_the_end(tmp_path: Path) -> None:
    assert list(written(tmp_path, gzip.compress(b"a\nb") + gzip.compress(b"c\nd\n")).lines()) == ["a", "bc", "d"]


def test_a_cut_gzip_file_says_how_far_it_could_be_read(tmp_path: Path) -> None:
    rows = "".join(f"{i} {os.urandom(20).hex()}\n" for i in range(5_000)).encode()
    file = written(tmp_path, gzip.compress(rows)[:-5_000])
    message = complaint(file)
    assert "gzip data is cut short after line" in message
    assert 4_000 < int(message.split("after line ")[1].split(";")[0]) < 5_000


def test_a_damaged_gzip_file_says_so(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(os.urandom(4_000).hex().encode()))
    packed[1_000:1_020] = bytes(20)
    assert "gzip data is damaged" in complaint(written(tmp_path, bytes(packed)))


@pytest.mark.parametrize("text", [GERMAN, CHINESE], ids=["german", "chinese"])
@pytest.mark.parametrize("encoding", ["UTF-16LE", "UTF-16BE", "UTF-16", "UTF-32LE", "UTF-32BE", "UTF-32"])
def test_wide_encodings_are_named_with_the_way_out(tmp_path: Path, text: str, encoding: str) -> None:
    message = complaint(written(tmp_path, text.encode(encoding)))
    assert f"is {encoding}; convert it with: iconv -f {encoding} -t UTF-8" in message


@pytest.mark.parametrize("encoding", ["GB2312", "GBK", "GB18030"])
@pytest.mark.parametrize("copies", [1, 9_999])
def test_chinese_of_old_programs_is_named_with_the_way_out(tmp_path: Path, encoding: str, copies: int) -> None:
    text = "我吃了一个苹果。\nyes\n他不在家，你来吗？\tHe is out, are you coming?\n" * copies
    message = complaint(written(tmp_path, text.encode(encoding)))
    assert "is GB18030; convert it with: iconv -f GB18030 -t UTF-8" in message


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Männer grüßen, Äpfel übers Öl\n", "latin-1"),
        ("我在這裡吃了一個蘋果，你呢？\n", "big5"),
        ("나는 사과를 먹었습니다\n", "euc-kr"),
        ("я съел яблоко вчера\n", "cp1251"),
        ("私はりんごを食べました\n", "shift-jis"),
    ],
)
def test_other_encodings_are_not_taken_for_it(tmp_path: Path, text: str, encoding: str) -> None:
    assert list(written(tmp_path, 3 * text.encode(encoding)).lines()) == 3 * [Reason.BAD_ENCODING]


def test_one_bad_line_among_good_ones_names_no_encoding(tmp_path: Path) -> None:
    good = ["我吃了一个苹果。", "你好"]
    bad = "我吃了".encode("GBK")
    found = list(written(tmp_path, b"\n".join([*(line.encode() for line in good), bad])).lines())
    assert found == [*good, Reason.BAD_ENCODING]


@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xfe\xff"])
def test_a_wide_byte_order_mark_is_enough(tmp_path: Path, mark: bytes) -> None:
    assert "is UTF-16" in complaint(written(tmp_path, mark + "你".encode("UTF-16LE")))


def test_nul_bytes_in_utf8_do_not_make_it_utf16(tmp_path: Path) -> None:
    found = list(written(tmp_path, "你好\n\0好\n\0\n".encode()).lines())
    assert found == ["你好", Reason.CONTROL, Reason.CONTROL]


def test_zero_bytes_are_recognised(tmp_path: Path) -> None:
    assert "mostly zero bytes" in complaint(written(tmp_path, bytes(1_000)))


@pytest.mark.parametrize("content", [b"a\rb\rc\r", b"a\rb", b"a\rb\rc\n", b"x\r" * MAX_LINE_BYTES])
def test_old_mac_files_are_refused_with_advice(tmp_path: Path, content: bytes) -> None:
    assert "ends its lines with CR only (old Mac); convert it with: tr" in complaint(written(tmp_path, content))


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", gzip.compress(b"")], ids=["plain", "mark", "gzip"])
def test_an_empty_file_is_refused(tmp_path: Path, content: bytes) -> None:
    assert complaint(written(tmp_path, content)).endswith("is empty")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"BZh91AY", "bzip2"),
        (b"\xfd7zXZ\x00\x00", "xz"),
        (b"\x28\xb5\x2f\xfd$", "zstd"),
        (b"PK\x03\x04", "zip"),
        (b"PAR1", "Parquet"),
        (gzip.compress(gzip.compress(b"a\n", mtime=0), mtime=0), "gzip inside gzip"),
    ],
)
def test_other_packed_formats_are_named(tmp_path: Path, content: bytes, name: str) -> None:
    assert f"is {name} data, not text; unpack it first" in complaint(written(tmp_path, content))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert complaint(TextFile(tmp_path / "no" / "such"), MissingInputError).startswith("there is no file")
    (tmp_path / "plain").write_text("x")
    assert complaint(TextFile(tmp_path / "plain" / "such"), MissingInputError).startswith("there is no file")


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    assert complaint(TextFile(tmp_path), MissingInputError).endswith("is a directory, not a file")


def test_a_pipe_cannot_be_read_twice(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in complaint(TextFile(tmp_path / "pipe"), MissingInputError)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_forbidden_file_says_so(tmp_path: Path) -> None:
    file = written(tmp_path, b"a\n")
    file.path.chmod(0)
    assert "permission denied" in complaint(file, MissingInputError)


def test_permission_trouble_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, b"a\n")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr(Path, "open", refuse)
    assert complaint(file, MissingInputError).endswith("cannot be read: permission denied")


def test_a_name_that_is_too_long_is_a_missing_input(tmp_path: Path) -> None:
    assert "cannot be read" in complaint(TextFile(tmp_path / ("x" * 5_000)), MissingInputError)


def test_a_failing_disk_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def __init__(self, **_: object) -> None: ...

        def read1(self, _: int) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("clearhead.data.lines.gzip.GzipFile", Failing)
    message = complaint(written(tmp_path, gzip.compress(b"a\n")), StorageError)
    assert "cannot be read after line 0: [Errno 5] Input/output error" in message


@pytest.mark.parametrize("extra", [-1, 0, 1, 2, 3])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_longest_line_is_exactly_the_bound(tmp_path: Path, extra: int, end: bytes) -> None:
    size = MAX_LINE_BYTES + extra
    first, second, third = written(tmp_path, b"a" + end + b"x" * size + end + b"b" + end).lines()
    assert (first, third) == ("a", "b")
    assert second == ("x" * size if extra <= 0 else Reason.TOO_LONG)


def test_an_endless_line_is_passed_over_in_constant_memory(tmp_path: Path) -> None:
    file = written(tmp_path, b"a\n" + b"x" * (12 * MAX_LINE_BYTES) + b"\nb")
    tracemalloc.start()
    try:
        assert list(file.lines()) == ["a", Reason.TOO_LONG, "b"]
        assert tracemalloc.get_traced_memory()[1] < 8 * MAX_LINE_BYTES
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, (b"some words on a line " * 50 + b"\n") * 20_000)
    tracemalloc.start()
    try:
        assert sum(1 for _ in file.raw_lines()) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 8 * MAX_LINE_BYTES
    finally:
        tracemalloc.stop()


def test_the_digest_follows_the_content(tmp_path: Path) -> None:
    one, two, other = (written(tmp_path, content, name) for content, name in [(b"a", "1"), (b"a", "2"), (b"b", "3")])
    assert one.digest() == two.digest() != other.digest()
