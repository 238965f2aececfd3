"""A file or folder of rows in, the wanted columns of each row out, or what is wrong with it; all can be read again.

Columns are numbers from 1, or names: then the first line of a TSV or CSV file is its header, and the keys of JSON lines
are meant. A new kind of table is one class and one line in TABLES.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from clearhead.data.lines import TextFile, without_controls
from clearhead.data.naming import label_of
from clearhead.data.reasons import Reason
from clearhead.errors import ConfigError, DataError, MissingInputError, choose

Column = int | str

MOST_FIELD_CHARS = 1 << 26
"""A longer field of a CSV file is no text but a quote that was never closed."""


class Row(NamedTuple):
    """One row as found."""

    line: int
    """Where it begins, counted from 1; in a folder, the number of its file."""
    values: tuple[str, ...]
    """The wanted columns; none if the row cannot be used."""
    reason: Reason = Reason.KEPT
    """What is wrong with it."""


class Table(Protocol):
    """Rows that can be read again and again, in constant memory."""

    path: Path
    columns: Sequence[Column]

    def __init__(self, path: Path, columns: Sequence[Column]) -> None: ...

    def rows(self) -> Iterator[Row]:
        """All rows in order, good and bad."""

    def where(self, line: int) -> str:
        """A row's place, for messages."""

    def digest(self) -> str:
        """The same for the same bytes, whatever is read of them."""

    def notes(self) -> list[str]:
        """What the latest full reading found and repaired."""

    @property
    def share_read(self) -> float:
        """How much of it the reading under way has come through, from 0 to 1."""


class OneFile:
    """What tables in one text file share."""

    def __init__(self, path: Path, columns: Sequence[Column]) -> None:
        self.path, self.columns = path, columns
        self.file = TextFile(path)
        self._num_cleaned = 0

    def lines(self) -> Iterator[str | Reason]:
        """Every line as text, with spaces in the place of control characters, or as what is wrong with it.

        A label does not become wrong by one odd character in its text, and no text may be missing from a score.
        """
        return (line for _, line in self.read())

    def read(self) -> Iterator[tuple[bytes | Reason, str | Reason]]:
        """The same, each line beside what it is in the file."""
        self._num_cleaned = 0
        for raw in self.file.raw_lines():
            line = _decoded(raw)
            clean = line if isinstance(line, Reason) else without_controls(line)
            self._num_cleaned += clean != line
            yield raw, clean

    def where(self, line: int) -> str:
        return f"{self.path} line {line:,}"

    def digest(self) -> str:
        return self.file.digest()

    def notes(self) -> list[str]:
        cleaned = f"{self.path}: control characters in {self._num_cleaned:,} lines were replaced by spaces"
        return [*self.file.notes(), *([cleaned] if self._num_cleaned else [])]

    @property
    def share_read(self) -> float:
        return self.file.share_read

    @property
    def has_header(self) -> bool:
        """Whether the first line names the columns."""
        return any(isinstance(column, str) for column in self.columns)

    def places(self, header: Sequence[str]) -> list[int]:
        """Where in a row the wanted columns stand."""
        names = [name.strip() for name in header]
        for column in self.columns:
            if isinstance(column, str) and column not in names:
                known = ", ".join(names[:10])
                raise DataError(
                    f"{self.path} has no column '{column}': its first line names {known}; say which to read, by name "
                    "or by number from 1"
                )
        return [names.index(column) if isinstance(column, str) else column - 1 for column in self.columns]


class Lines(OneFile):
    """One text a line, and nothing else in it."""

    def rows(self) -> Iterator[Row]:
        for number, line in enumerate(self.lines(), start=1):
            yield Row(number, (), line) if isinstance(line, Reason) else Row(number, (line,))


class TabSeparatedRows(OneFile):
    """Columns between tabs; quotes mean nothing."""

    def rows(self) -> Iterator[Row]:
        lines = self.lines()
        header: list[str] = []
        if self.has_header:
            first = next(lines, "")
            if isinstance(first, Reason):
                raise DataError(f"{self.path} line 1, which should name the columns, cannot be read: {first.label}")
            header = first.split("\t")
        places = self.places(header)
        for number, line in enumerate(lines, start=2 if self.has_header else 1):
            if isinstance(line, Reason):
                yield Row(number, (), line)
            else:
                yield _row(number, line.split("\t") if line.strip() else [], places)


class CommaSeparatedRows(OneFile):
    """Columns between commas; a field in double quotes may hold commas, doubled quotes and line ends (RFC 4180)."""

    def rows(self) -> Iterator[Row]:
        broken: list[Reason] = []
        csv.field_size_limit(max(MOST_FIELD_CHARS, csv.field_size_limit()))
        reader = csv.reader(self._lines(broken), strict=True)
        places: list[int] | None = None if self.has_header else self.places([])
        line = 1
        while True:
            try:
                fields = next(reader, None)
            except csv.Error as error:
                raise DataError(
                    f"{self.path} line {line:,} on is not CSV with commas and double quotes: {error}"
                ) from None
            if fields is None:
                return
            if places is None:
                places = self.places(fields)
            elif broken:
                yield Row(line, (), broken[0])
            else:
                yield _row(line, fields, places)
            broken.clear()
            line = reader.line_num + 1

    def _lines(self, broken: list[Reason]) -> Iterator[str]:
        """Lines as the reader needs them: of one that is no text, its quotes and commas, which others go by."""
        for raw, line in self.read():
            if isinstance(line, Reason):
                broken.append(line)
                line = "" if isinstance(raw, Reason) else without_controls(raw.decode(errors="replace"))
            yield f"{line}\n"


class JsonLines(OneFile):
    """One JSON object a line; columns are its keys."""

    def rows(self) -> Iterator[Row]:
        for column in self.columns:
            if isinstance(column, int):
                raise ConfigError(f"{self.path} has keys, not numbered columns: name one instead of {column}")
        for number, line in enumerate(self.lines(), start=1):
            if isinstance(line, Reason):
                yield Row(number, (), line)
            elif not line.strip():
                yield Row(number, (), Reason.EMPTY)
            else:
                yield self._row(number, line)

    def _row(self, number: int, line: str) -> Row:
        try:
            tree = json.loads(line)
        except ValueError as error:
            raise DataError(f"{self.where(number)} is not JSON: {error}") from None
        except RecursionError:
            raise DataError(f"{self.where(number)} is not JSON that can be read: it is nested too deeply") from None
        if not isinstance(tree, dict):
            raise DataError(f'{self.where(number)} is not a JSON object, such as {{"text": "…"}}')
        values = [tree.get(str(column)) for column in self.columns]
        for column, value in zip(self.columns, values, strict=True):
            if isinstance(value, (list, dict)):
                raise DataError(f"{self.where(number)}: '{column}' is neither text nor a number")
        if any(value is None for value in values):
            return Row(number, (), Reason.MISSING_COLUMN)
        texts = tuple(value if isinstance(value, str) else json.dumps(value) for value in values)
        return Row(number, texts) if all(map(_is_text, texts)) else Row(number, (), Reason.BAD_ENCODING)


class Folder:
    """One text a file, of any depth of folders; a second column is the name of the topmost folder a file is in."""

    def __init__(self, path: Path, columns: Sequence[Column]) -> None:
        self.path, self.columns = path, columns
        self._files: list[Path] | None = None
        self._done = 0

    @property
    def files(self) -> list[Path]:
        """All files but hidden ones, by name."""
        if self._files is None:
            if not self.path.is_dir():
                raise MissingInputError(f"there is no folder {self.path}")
            inside = (path.relative_to(self.path) for path in self.path.rglob("*") if path.is_file())
            self._files = sorted(path for path in inside if not any(part.startswith(".") for part in path.parts))
            if not self._files:
                raise DataError(f"{self.path} has no files in it")
        return self._files

    def rows(self) -> Iterator[Row]:
        for number, file in enumerate(self.files, start=1):
            self._done = number
            if len(self.columns) > 1 and len(file.parts) < 2:
                raise DataError(
                    f"{self.path / file} is not in the folder of a class: {self.path}/CLASS/{file} is wanted"
                )
            labels = [label_of(self.path, file.parts[0])] if len(self.columns) > 1 else []
            has_text = (self.path / file).stat().st_size > 0
            lines = [_decoded(raw) for raw in TextFile(self.path / file).raw_lines()] if has_text else []
            bad = next((line for line in lines if isinstance(line, Reason)), None)
            text = "\n".join(without_controls(line) for line in lines if isinstance(line, str))
            yield Row(number, (text, *labels)) if bad is None else Row(number, (), bad)

    def where(self, line: int) -> str:
        return str(self.path / self.files[line - 1])

    def digest(self) -> str:
        found = hashlib.sha256()
        for file in self.files:
            size = (self.path / file).stat().st_size
            found.update(json.dumps([file.as_posix(), TextFile(self.path / file).digest() if size else ""]).encode())
        return found.hexdigest()

    def notes(self) -> list[str]:
        return []

    @property
    def share_read(self) -> float:
        return self._done / len(self.files)


TABLES: dict[str, type[Table]] = {
    "lines": Lines,
    "tsv": TabSeparatedRows,
    "csv": CommaSeparatedRows,
    "jsonl": JsonLines,
    "folder": Folder,
}

ENDINGS = {".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".txt": "lines"}


def open_table(path: Path, columns: Sequence[Column], kind: str | None, kinds: Sequence[str]) -> Table:
    """A table of one of these kinds; if none is named, the end of the file's name tells which."""
    if kind is None:
        ending = Path(path.name.removesuffix(".gz")).suffix.lower()
        kind = "folder" if path.is_dir() else ENDINGS.get(ending)
    if kind is None or kind not in kinds:
        known = ", ".join(kinds)
        raise ConfigError(f"what kind of file is {path}? Its name does not tell: set data.kind to one of {known}")
    return choose(TABLES, kind, "kind of file")(path, columns)


def _decoded(raw: bytes | Reason) -> str | Reason:
    if isinstance(raw, Reason):
        return raw
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return Reason.BAD_ENCODING


def _is_text(text: str) -> bool:
    """Whether it can be written as UTF-8: JSON can escape one half of a character, and that cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _row(number: int, fields: Sequence[str], places: Sequence[int]) -> Row:
    if not fields:
        return Row(number, (), Reason.EMPTY)
    if len(fields) <= max(places):
        return Row(number, (), Reason.MISSING_COLUMN)
    return Row(number, tuple(fields[place] for place in places))
