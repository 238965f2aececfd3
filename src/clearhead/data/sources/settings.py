"""The settings of parallel data: where the pairs come from, and which of them are used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from clearhead.config import Record
from clearhead.data.augment import Augment
from clearhead.data.limits import Limits
from clearhead.data.naming import NamedFiles
from clearhead.data.numbers import LARGEST
from clearhead.errors import did_you_mean


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

    extra: str | None = None
    """More pairs to train on, source and target in the first two columns of a tab-separated file of your own, also
    beside a named set: such as models have made of the others (clearhead data diversify). None is held out, and none is
    used that has what is held out, or given to validate or test on, on the side of hold_out_by."""

    augment: Augment = Augment()
    """Other forms in which some training pairs are also seen."""

    split_pieces: float = Field(default=0.0, ge=0.0, lt=1.0)
    """The chance with which a piece of a source sentence is seen as the two it was merged from, others in each pass:
    for small data and rare words, 0.1 to 0.2; only for bpe. max_tokens counts whole pieces."""

    workers: int | None = Field(default=None, ge=1)
    """How many processes tokenise; left out, one for each core, and one alone for small data. It changes nothing but
    the time."""

    limits: Limits = Limits()
    """What a pair must be like to be used."""

    @field_validator("kind")
    @classmethod
    def _kind_exists(cls, kind: str) -> str:
        from clearhead.data.sources import SOURCES  # Each of which knows these settings.

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
        """All files that are named, those of more pairs apart."""
        return [*super().files, *(part.tsv for part in self.parts)]

    @property
    def loose_files(self) -> list[str]:
        """Those that are of no set."""
        return [*super().loose_files, *([self.extra] if self.extra else [])]


# Which kind a setting belongs to, by how its name ends; others belong to all kinds.
_ENDS = {"tsv": "tsv", "source": "files", "target": "files", "parts": "parts"}
