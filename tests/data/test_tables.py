"""Tables of every kind say the same of the same rows, and where a mistake is."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.reasons import Reason
from clearhead.data.tables import TABLES, Column, Row, open_table
from clearhead.errors import ClearheadError, ConfigError, DataError, MissingInputError

ROWS = [("good film", "pos"), ("bad, very “bad”", "neg"), ("我不喜欢", "neg")]


def rows(path: Path, columns: tuple[Column, ...] = ("text", "label"), kind: str | None = None) -> list[Row]:
    return list(open_table(path, columns, kind, list(TABLES)).rows())


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def written(folder: Path, kind: str) -> Path:
    """The same rows as a table of each kind."""
    if kind == "tsv":
        return write(folder / "a.tsv", "label\tid\ttext\n" + "".join(f"{b}\t7\t{a}\n" for a, b in ROWS))
    if kind == "csv":
        found = io.StringIO()
        csv.writer(found, lineterminator="\n").writerows([("label", "text"), *((b, a) for a, b in ROWS)])
        return write(folder / "a.csv", found.getvalue())
    if kind == "jsonl":
        return write(folder / "a.jsonl", "".join(json.dumps({"text": a, "label": b, "id": 7}) + "\n" for a, b in ROWS))
    for number, (text, label) in enumerate(ROWS):
        (folder / label).mkdir(exist_ok=True)
        write(folder / label / f"{number}.txt", text)
    return folder


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "folder"])
def test_every_kind_gives_the_same_rows(kind: str, tmp_path: Path) -> None:
    found = rows(written(tmp_path, kind))
    assert sorted(row.values for row in found) == sorted(ROWS)
    assert {row.reason for row in found} == {Reason.KEPT}


@pytest.mark.parametrize(("kind", "first"), [("tsv", 2), ("csv", 2), ("jsonl", 1)])
def test_lines_are_counted_as_an_editor_counts_them(kind: str, first: int, tmp_path: Path) -> None:
    path = written(tmp_path, kind)
    assert [row.line for row in rows(path)] == [first, first + 1, first + 2]
    assert open_table(path, ("text",), None, list(TABLES)).where(1234) == f"{path} line 1,234"


def test_a_folders_places_are_its_files(tmp_path: Path) -> None:
    written(tmp_path, "folder")
    write(tmp_path / "neg" / ".hidden", "x")
    table = open_table(tmp_path, ("text", "label"), None, list(TABLES))
    assert [table.where(row.line) for row in table.rows()] == [
        str(tmp_path / name) for name in ("neg/1.txt", "neg/2.txt", "pos/0.txt")
    ]


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "folder"])
def test_reading_again_and_packing_change_nothing_but_content_does(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, kind)
    table = open_table(path, ("text", "label"), None, list(TABLES))
    assert list(table.rows()) == list(table.rows())
    assert table.share_read == 1.0
    before = table.digest()
    assert open_table(path, ("text", "label"), None, list(TABLES)).digest() == before
    target = path / "neg" / "1.txt" if kind == "folder" else path
    write(target, target.read_text() + "\n")
    assert open_table(path, ("text", "label"), None, list(TABLES)).digest() != before


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl"])
def test_a_packed_file_reads_like_a_plain_one(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, kind)
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert rows(packed) == rows(path)


def test_columns_may_be_numbers_and_then_there_is_no_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "pos\tgood\nneg\tbad\n")
    assert [row.values for row in rows(path, (2, 1))] == [("good", "pos"), ("bad", "neg")]


def test_a_number_beside_a_name_counts_below_the_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "mood\twords\npos\tgood\n")
    assert [row.values for row in rows(path, (2, "mood"))] == [("good", "pos")]


def test_rows_that_lack_a_column_are_told_from_empty_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\ngood\n\nfine\tpos\n")
    assert [(row.line, row.reason) for row in rows(path)] == [
        (2, Reason.MISSING_COLUMN), (3, Reason.EMPTY), (4, Reason.KEPT),
    ]  # fmt: skip


def test_a_field_of_csv_may_run_over_lines_and_the_place_is_where_it_begins(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text,label\n"one\n""two""\nthree",pos\nfour,neg\n')
    assert [(row.line, row.values) for row in rows(path)] == [(2, ('one\n"two"\nthree', "pos")), (5, ("four", "neg"))]


def test_a_long_field_of_csv_is_read_whole(tmp_path: Path) -> None:
    text = "long, " * 30_000
    assert [row.values for row in rows(write(tmp_path / "a.csv", f'text,label\n"{text}",pos\n'))] == [(text, "pos")]


@given(st.lists(st.tuples(st.text(), st.text(min_size=1)), min_size=1))
def test_csv_is_what_pythons_own_writer_writes(table: list[tuple[str, str]]) -> None:
    import tempfile

    # What is no text at all is left to the reader of lines.
    cleaned = [tuple("".join(c for c in part if c.isprintable() or c == "\n") for part in row) for row in table]
    found = io.StringIO()
    csv.writer(found, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([("text", "label"), *cleaned])
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "a.csv", found.getvalue())
        assert [row.values for row in rows(path)] == cleaned


def test_numbers_and_truth_in_json_become_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": true}\n{"text": "c"}\n\n')
    assert [row.values for row in rows(path)][:2] == [("a", "1"), ("b", "true")]
    assert [row.reason for row in rows(path)][2:] == [Reason.MISSING_COLUMN, Reason.EMPTY]


def test_bad_bytes_spoil_one_row_only(tmp_path: Path) -> None:
    for name, text in (("a.tsv", b"text\tlabel\n\xff\tpos\nb\tneg\n"), ("a.csv", b"text,label\n\xff,pos\nb,neg\n")):
        (tmp_path / name).write_bytes(text)
        assert [(row.line, row.reason) for row in rows(tmp_path / name)] == [(2, Reason.BAD_ENCODING), (3, Reason.KEPT)]


@pytest.mark.parametrize(
    "field", [b'"caf\xe9, the first\nthe second"', b'"the first\ncaf\xe9, ""the"" second"', b'caf\xe9 of "it"']
)
def test_bad_bytes_in_a_field_of_csv_over_several_lines_spoil_one_row_only(field: bytes, tmp_path: Path) -> None:
    """What follows is no row of its own, and no quote that is not closed."""
    (tmp_path / "a.csv").write_bytes(b"text,label\n" + field + b',pos\n"good",neg\n')
    first, last = rows(tmp_path / "a.csv")
    assert (first.line, first.values, first.reason) == (2, (), Reason.BAD_ENCODING)
    assert (last.values, last.reason) == (("good", "neg"), Reason.KEPT)


def test_bad_bytes_beside_the_names_of_the_columns_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"text,gr\xf6sse,label\ngood,3,pos\n")
    assert [row.values for row in rows(tmp_path / "a.csv")] == [("good", "pos")]


def test_half_a_character_in_json_spoils_one_row_only(tmp_path: Path) -> None:
    lines = [r'{"text": "broken \ud83d here", "label": "a"}', r'{"text": "whole \ud83d\ude00", "label": "\udc00"}']
    path = write(tmp_path / "a.jsonl", "\n".join([*lines, r'{"text": "whole \ud83d\ude00", "label": "a"}']) + "\n")
    assert rows(path) == [
        Row(1, (), Reason.BAD_ENCODING), Row(2, (), Reason.BAD_ENCODING), Row(3, ("whole 😀", "a")),
    ]  # fmt: skip


def test_control_characters_become_spaces_and_are_told(tmp_path: Path) -> None:
    for name, text in (("a.tsv", "text\tlabel\ngo\x10od\tpos\n"), ("a.csv", "text,label\ngo\x00od,pos\n")):
        table = open_table(write(tmp_path / name, text), ("text", "label"), None, list(TABLES))
        assert [row.values for row in table.rows()] == [("go od", "pos")]
        assert table.notes() == [f"{tmp_path / name}: control characters in 1 lines were replaced by spaces"]
    (tmp_path / "folder" / "pos").mkdir(parents=True)
    write(tmp_path / "folder" / "pos" / "a.txt", "go\x10od")
    assert [row.values for row in rows(tmp_path / "folder")] == [("go od", "pos")]


def test_lines_are_one_text_each(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one\ttwo\nthree\n")
    assert [row.values for row in rows(path, ("text",))] == [("one\ttwo",), ("three",)]


def test_an_empty_file_in_a_folder_is_an_empty_text(tmp_path: Path) -> None:
    (tmp_path / "pos").mkdir()
    write(tmp_path / "pos" / "a.txt", "")
    assert [row.values for row in rows(tmp_path)] == [("", "pos")]


MISTAKES: list[tuple[str, str, type[ClearheadError], str]] = [
    ("a.tsv", "words\tlabel\nx\ty\n", DataError, "a.tsv has no column 'text': its first line names words, label"),
    ("a.csv", 'text,label\na,pos\n"b,pos\nc,neg\n', DataError, "a.csv line 3 on is not CSV"),
    ("a.csv", 'text,label\n"a"b,pos\n', DataError, "a.csv line 2 on is not CSV"),
    ("a.jsonl", '{"text": "a", "label": 1}\n{"text": \n', DataError, "a.jsonl line 2 is not JSON"),
    ("a.jsonl", "[1]\n", DataError, "a.jsonl line 1 is not a JSON object"),
    ("a.jsonl", '{"text": "a", "label": ["x"]}\n', DataError, "a.jsonl line 1: 'label' is neither text nor a number"),
    ("a.dat", "x\n", ConfigError, "what kind of file is .*a.dat"),
    ("a.tsv", "", DataError, "a.tsv is empty"),
]


@pytest.mark.parametrize(("name", "text", "error", "said"), MISTAKES)
def test_mistakes_are_told_with_file_and_line(
    name: str, text: str, error: type[ClearheadError], said: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=said):
        rows(write(tmp_path / name, text))


def test_json_that_is_nested_too_deeply_is_told_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a", "label": 1}\n' + "[" * 100_000)
    with pytest.raises(DataError, match=r"a\.jsonl line 2 is not JSON that can be read: it is nested too deeply"):
        rows(path)


def test_json_has_keys_and_no_numbered_columns(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has keys, not numbered columns"):
        rows(write(tmp_path / "a.jsonl", "{}\n"), (1, 2))


def test_mistakes_in_folders_are_told(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="there is no folder"):
        rows(tmp_path / "nowhere", kind="folder")
    with pytest.raises(DataError, match="has no files in it"):
        rows(tmp_path)
    write(tmp_path / "stray.txt", "x")
    with pytest.raises(DataError, match=r"stray\.txt is not in the folder of a class"):
        rows(tmp_path)


def test_a_folder_whose_name_is_no_text_can_be_no_label(tmp_path: Path) -> None:
    """It could not be stored with a model, nor shown."""
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    odd.mkdir()
    write(odd / "a.txt", "black")
    with pytest.raises(
        DataError, match=r"has a folder 'caf\\xe9', whose name is not UTF-8 and can be no label: rename"
    ):
        rows(tmp_path)
    assert [row.values for row in rows(tmp_path, ("text",))] == [("black",)], "without labels nobody asks"
