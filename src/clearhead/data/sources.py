"""Data settings come in; a source of raw aligned pairs for each split goes out; a kind is one class and one line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import AfterValidator, Field, field_validator, model_validator

from clearhead.config import Record
from clearhead.data.augment import Augment
from clearhead.data.limits import Limits
from clearhead.data.lines import TextFile
from clearhead.data.naming import NamedFiles
from clearhead.data.number_split import Split, sample_numbers
from clearhead.data.numbers import LANGUAGES, LARGEST, spell
from clearhead.data.reasons import Reason
from clearhead.errors import ConfigError, DataError, choose, did_you_mean


def _two_columns(columns: list[int]) -> list[int]:
    if len(columns) != 2 or min(columns) < 1 or columns[0] == columns[1]:
        raise ValueError("columns are two different numbers from 1, source and target")
    return columns


class Part(Record):
    """One of several files that are trained on together."""

    tsv: str
    """Its pairs, one a line, plain or gzip; columns are separated by tabs, quotes mean nothing."""

    columns: Annotated[list[int], AfterValidator(_two_columns)] = Field(default=[1, 2])
    """The columns of source and target, counted from 1; other columns are ignored."""

    language: str | None = None
    """Short name of its source language, such as "de": for the model card, and to score it by itself."""

    repeat: int = Field(default=1, ge=1, le=100)
    """How often its pairs are seen in each pass over the training data; what is held out is never repeated."""

    @property
    def name(self) -> str:
        """What to call it: its language, or else its file."""
        return self.language or self.stem

    @property
    def stem(self) -> str:
        """Its file's name without what comes after the first dot."""
        return Path(self.tsv).name.partition(".")[0]


class DataConfig(NamedFiles):
    """Where the pairs come from, and which of them are used."""

    FILES = (
        "source", "target", "validation_source", "validation_target", "test_source", "test_target",
        "tsv", "validation_tsv", "test_tsv",
    )  # fmt: skip

    kind: str = "files"
    """`files` (two aligned text files), `tsv` (one tab-separated file), `parts` (several of them) or `numbers` (the
    built-in number words)."""

    source: str | None = None
    """kind `files`: the source side for training, one sentence a line, plain or gzip."""

    target: str | None = None
    """kind `files`: the target side for training; line i translates line i of the source."""

    validation_source: str | None = None
    """kind `files`: the source side for validation."""

    validation_target: str | None = None
    """kind `files`: the target side for validation."""

    test_source: str | None = None
    """kind `files`: the source side for the final test."""

    test_target: str | None = None
    """kind `files`: the target side for the final test."""

    tsv: str | None = None
    """kind `tsv`: the training pairs, one a line, plain or gzip; columns are separated by tabs, quotes mean nothing."""

    validation_tsv: str | None = None
    """kind `tsv`: the validation pairs."""

    test_tsv: str | None = None
    """kind `tsv`: the pairs of the final test."""

    columns: Annotated[list[int], AfterValidator(_two_columns)] = Field(default=[1, 2])
    """kind `tsv`: the columns of source and target, counted from 1; other columns are ignored."""

    parts: list[Part] = Field(default=[], max_length=100)
    """kind `parts`: tab-separated files that are trained on together, each with its columns, language and repeat."""

    source_language: str | None = None
    """Short name of the source language, such as "de": for the model card; kind `numbers` needs it (default "de")."""

    target_language: str | None = None
    """Short name of the target language, such as "en": for the model card; kind `numbers` needs it (default "en")."""

    largest: int = Field(default=999_999, ge=100, le=LARGEST)
    """kind `numbers`: the largest number."""

    train_size: int = Field(default=20_000, ge=1)
    """kind `numbers`: how many numbers to train on."""

    validation_size: int = Field(default=1_000, ge=1)
    """kind `numbers`: how many unseen numbers to validate on."""

    test_size: int = Field(default=1_000, ge=1)
    """kind `numbers`: how many other unseen numbers to test on."""

    hold_out: int | float | None = Field(default=None, gt=0)
    """Without validation files: how many training pairs to set aside for validation, as a count or as a share below 1;
    left out, 5 % and at most 2,000. With a share, each text is chosen by itself: more data move none of it."""

    hold_out_test: int | float | None = Field(default=None, gt=0)
    """Without test files: how many training pairs to set aside for the final test, as a count or as a share below 1;
    left out, none. They follow from the texts alone, so that no run, whatever its seed, is trained on them."""

    hold_out_by: Literal["source", "target"] = "source"
    """Pairs with the same text on this side, but for case, punctuation and spaces, are held out together, so that what
    is held out stays unseen."""

    augment: Augment = Augment()
    """Other forms in which some training pairs are also seen."""

    workers: int | None = Field(default=None, ge=1)
    """How many processes tokenise; left out, one for each core, and one alone for small data. It changes nothing but
    the time."""

    limits: Limits = Limits()
    """What a pair must be like to be used."""

    @field_validator("kind")
    @classmethod
    def _kind_exists(cls, kind: str) -> str:
        if kind not in SOURCES:
            raise ValueError(f"unknown kind of data, {did_you_mean(kind, SOURCES)}")
        return kind

    @model_validator(mode="after")
    def _paths_fit_the_kind(self) -> DataConfig:
        for name in sorted(self.model_fields_set):
            kind = next((kind for ends, kind in _ENDS.items() if name.endswith(ends)), self.kind)
            if kind != self.kind and getattr(self, name):
                raise ValueError(f"'{name}' belongs to kind '{kind}', but the kind is '{self.kind}'")
        return self

    @property
    def source_languages(self) -> list[str]:
        """The short names of the languages that are translated from, as far as they are known."""
        named = [self.source_language, *(part.language for part in self.parts)]
        return list(dict.fromkeys(language for language in named if language))

    @property
    def files(self) -> list[str]:
        """All files that are named."""
        return [*super().files, *(part.tsv for part in self.parts)]


# Which kind a setting belongs to, by how its name ends; others belong to all kinds.
_ENDS = {"tsv": "tsv", "source": "files", "target": "files", "parts": "parts"}


class RawPair(NamedTuple):
    """One pair as found; a side that cannot be used is None, and `reason` says why."""

    number: int
    """Its place among all pairs, counted from 1; where there is one file, its line."""
    source: str | None
    target: str | None
    reason: Reason = Reason.KEPT
    part: int = 0
    """Which of the source's parts it belongs to, counted from 0."""


class PairSource(Protocol):
    """Aligned pairs that can be read again and again, in constant memory."""

    @property
    def name(self) -> str:
        """What to call it in messages."""

    @property
    def parts(self) -> Sequence[Part]:
        """The files it is made of, if they are more than one side by side."""

    @classmethod
    def for_split(cls, config: DataConfig, split: Split) -> PairSource | None:
        """Open one split, or None if the settings do not give it."""

    def pairs(self) -> Iterator[RawPair]:
        """All pairs in order, good and bad."""

    def fingerprint(self) -> str:
        """The same for the same content and settings, different otherwise."""

    def notes(self) -> list[str]:
        """What the latest full reading found and repaired."""

    def share_read(self) -> float:
        """How much of it the reading under way has come through, from 0 to 1."""


class AlignedFiles:
    """Two text files in which equal line numbers belong together."""

    parts: Sequence[Part] = ()

    def __init__(self, source: Path, target: Path) -> None:
        self.source = TextFile(source)
        self.target = TextFile(target)

    @classmethod
    def for_split(cls, config: DataConfig, split: Split) -> AlignedFiles | None:
        prefix = "" if split == "train" else f"{split}_"
        source, target = getattr(config, f"{prefix}source"), getattr(config, f"{prefix}target")
        if source and target:
            return cls(config.path(source), config.path(target))
        if source or target:
            given, absent = ("source", "target") if source else ("target", "source")
            raise ConfigError(f"data.{prefix}{given} is {source or target}, but data.{prefix}{absent} is missing")
        return None

    @property
    def name(self) -> str:
        return f"{self.source.path} + {self.target.path}"

    def pairs(self) -> Iterator[RawPair]:
        lines = zip_longest(self.source.lines(), self.target.lines())
        for number, (source, target) in enumerate(lines, start=1):
            if isinstance(source, str) and isinstance(target, str):
                yield RawPair(number, source, target)
            elif source is None or target is None:
                from clearhead.data.alignment import explain_unequal

                raise DataError(explain_unequal(self.source, self.target))
            else:
                reason = next(side for side in (source, target) if isinstance(side, Reason))
                yield RawPair(number, _text(source), _text(target), reason)

    def fingerprint(self) -> str:
        return _fingerprint("files", self.source.digest(), self.target.digest())

    def notes(self) -> list[str]:
        return self.source.notes() + self.target.notes()

    def share_read(self) -> float:
        return self.source.share_read


class TabSeparated:
    """One text file with source and target in two of its columns."""

    parts: Sequence[Part] = ()

    def __init__(self, path: Path, columns: tuple[int, int] = (1, 2)) -> None:
        self.file = TextFile(path)
        self.columns = columns

    @classmethod
    def for_split(cls, config: DataConfig, split: Split) -> TabSeparated | None:
        path = {"train": config.tsv, "validation": config.validation_tsv, "test": config.test_tsv}[split]
        return cls(config.path(path), (config.columns[0], config.columns[1])) if path else None

    @property
    def name(self) -> str:
        return str(self.file.path)

    def pairs(self) -> Iterator[RawPair]:
        source, target = self.columns[0] - 1, self.columns[1] - 1
        needed = max(self.columns)
        for number, line in enumerate(self.file.lines(), start=1):
            if isinstance(line, Reason):
                yield RawPair(number, None, None, line)
                continue
            fields = line.split("\t", needed)
            if len(fields) >= needed:
                yield RawPair(number, fields[source], fields[target])
            else:
                yield RawPair(number, None, None, Reason.EMPTY if not line.strip() else Reason.MISSING_COLUMN)

    def fingerprint(self) -> str:
        return _fingerprint("tsv", self.columns, self.file.digest())

    def notes(self) -> list[str]:
        return self.file.notes()

    def share_read(self) -> float:
        return self.file.share_read


class Joined:
    """Several tab-separated files, one after the other."""

    def __init__(self, parts: Sequence[Part], files: Sequence[TabSeparated]) -> None:
        self.parts = parts
        self.files = files

    @classmethod
    def for_split(cls, config: DataConfig, split: Split) -> Joined | None:
        if split != "train" or not config.parts:
            return None
        columns = ((part.columns[0], part.columns[1]) for part in config.parts)
        paths = (config.path(part.tsv) for part in config.parts)
        return cls(config.parts, [TabSeparated(path, pair) for path, pair in zip(paths, columns, strict=True)])

    @property
    def name(self) -> str:
        return " + ".join(file.name for file in self.files)

    def pairs(self) -> Iterator[RawPair]:
        for file in self.files:
            file.file.share_read = 0.0
        raws = ((part, raw) for part, file in enumerate(self.files) for raw in file.pairs())
        for number, (part, raw) in enumerate(raws, start=1):
            yield raw._replace(number=number, part=part)

    def fingerprint(self) -> str:
        return _fingerprint("parts", *(file.fingerprint() for file in self.files))

    def notes(self) -> list[str]:
        return [note for file in self.files for note in file.notes()]

    def share_read(self) -> float:
        sizes = [file.file.path.stat().st_size for file in self.files]
        return sum(size * file.share_read() for size, file in zip(sizes, self.files, strict=True)) / max(1, sum(sizes))


class NumberWords:
    """The built-in corpus: the same numbers spelled in two languages."""

    parts: Sequence[Part] = ()

    def __init__(self, languages: tuple[str, str], split: Split, size: int, largest: int) -> None:
        for language in languages:
            choose(LANGUAGES, language, "number language")
        if languages[0] == languages[1]:
            raise ConfigError(f"number words need two languages, not '{languages[0]}' twice: choose from de, en, zh")
        self.languages = languages
        self.split = split
        self.size = size
        self.largest = largest
        self._place = 0

    @classmethod
    def for_split(cls, config: DataConfig, split: Split) -> NumberWords:
        languages = config.source_language or "de", config.target_language or "en"
        size = {"train": config.train_size, "validation": config.validation_size, "test": config.test_size}[split]
        return cls(languages, split, size, config.largest)

    @property
    def name(self) -> str:
        return f"number words {self.languages[0]} → {self.languages[1]} ({self.split})"

    def numbers(self) -> list[int]:
        """The numbers in the order of the pairs."""
        return sample_numbers(self.split, self.size, self.largest)

    def pairs(self) -> Iterator[RawPair]:
        source, target = self.languages
        for place, number in enumerate(self.numbers(), start=1):
            self._place = place
            yield RawPair(place, spell(number, source), spell(number, target))

    def fingerprint(self) -> str:
        return _fingerprint("numbers", self.languages, self.split, self.size, self.largest)

    def notes(self) -> list[str]:
        return []

    def share_read(self) -> float:
        return self._place / self.size


def open_source(config: DataConfig, split: Split) -> PairSource | None:
    """Open a split of the data; validation and test are None if not given, training data must be there."""
    source = choose(SOURCES, config.kind, "kind of data").for_split(config, split)
    if source is None and split == "train":
        wanted = {"tsv": "data.tsv", "parts": "data.parts"}.get(config.kind, "data.source and data.target")
        raise ConfigError(f"no training data: set {wanted}")
    return source


def _fingerprint(kind: str, *settings: Any) -> str:
    return hashlib.sha256(json.dumps([kind, 1, *settings]).encode()).hexdigest()


def _text(line: str | Reason) -> str | None:
    return None if isinstance(line, Reason) else line


SOURCES: dict[str, type[PairSource]] = {
    "files": AlignedFiles,
    "tsv": TabSeparated,
    "parts": Joined,
    "numbers": NumberWords,
}
