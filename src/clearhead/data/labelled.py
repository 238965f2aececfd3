"""Data settings in, labelled texts out; tokenised, they are the examples of a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from clearhead.config import one_of
from clearhead.data.chance import bits, shares
from clearhead.data.cutting import LongTexts
from clearhead.data.examples import Draw, Integers
from clearhead.data.naming import NamedFiles
from clearhead.data.number_split import Split
from clearhead.data.tables import Column, open_table
from clearhead.data.texts import Survey, Texts
from clearhead.data.tokenised import TokenisedTexts
from clearhead.errors import ConfigError, DataError
from clearhead.text import BOS_ID, EOS_ID, PAD_ID

KINDS = ("tsv", "csv", "jsonl", "folder")
MOST_LABELS = 1_000
"""More than so many are hardly labels."""


class LabelledConfig(NamedFiles):
    """Where labelled texts come from, and which of them are used."""

    FILES = ("train", "validation", "test")

    kind: Annotated[str, one_of(KINDS, "kind of labelled data")] | None = None
    """`tsv` (quotes mean nothing), `csv` (commas and double quotes), `jsonl` (one object a line) or `folder` (a folder
    for each class, a file for each text); left out, the names of the files tell."""

    train: str | None = None
    """The texts to train on: a file, plain or gzip, or a folder."""

    validation: str | None = None
    """The texts to validate on; left out, some are held out of those to train on."""

    test: str | None = None
    """The texts of the final test."""

    text: Column = "text"
    """The column of the texts: its name in the first line, its key in JSON, or its number from 1."""

    label: Column = "label"
    """The column of the labels."""

    hold_out: int | float | None = Field(default=None, gt=0)
    """Without validation data: how many texts to set aside for validation, as a count or as a share below 1; left out,
    5 % and at most 2,000. With a share, each text is chosen by itself: more data move none of it."""

    hold_out_test: int | float | None = Field(default=None, gt=0)
    """Without test data: how many texts to set aside for the final test. They follow from the texts alone, so that no
    run, whatever its seed, is trained on them."""

    max_chars: int = Field(default=500_000, ge=1)
    """Texts with more characters are left out."""

    drop_duplicates: bool = True
    """Leave out texts that came before with the same label; never in validation and test data."""

    drop_tokens: float = Field(default=0.0, ge=0, lt=1)
    """Share of its tokens that each text is trained without, others in each pass: against learning texts by heart."""


def open_labelled(config: LabelledConfig, split: Split) -> Texts | None:
    """The texts of a split; validation and test are None if not given, training texts must be there."""
    name = {"train": config.train, "validation": config.validation, "test": config.test}[split]
    if name is None:
        if split == "train":
            raise ConfigError("no training data: set data.train to a file or folder of labelled texts")
        return None
    return labelled_texts(config.path(name), config.kind, config.text, config.label)


def labelled_texts(path: Path, kind: str | None, text: Column, label: Column) -> Texts:
    """The labelled texts of one file or folder."""
    for name, column in (("text", text), ("label", label)):
        if isinstance(column, int) and column < 1:
            raise ConfigError(f"columns are counted from 1: data.{name} = {column}")
    if kind is None and path.name.removesuffix(".gz").endswith(".txt") and not path.is_dir():
        kind = "tsv"
    return Texts([open_table(path, (text, label), kind, KINDS)], labelled=True, one_line=True)


def check_labels(survey: Survey) -> None:
    """Refuse labels that nothing can be learnt from."""
    name, counts = survey.texts.name, survey.counts()
    if len(counts) < 2:
        raise DataError(
            f"{name}: all {survey.num_kept:,} texts have the label '{survey.names[0]}', and a classifier needs two "
            "labels or more: is data.label the right column?"
        )
    if len(counts) > max(2, min(MOST_LABELS, survey.num_kept // 2)):
        raise DataError(
            f"{name} has {len(counts):,} different labels in {survey.num_kept:,} texts: is data.label the right column?"
        )


def check_known(survey: Survey, names: Sequence[str]) -> None:
    """Refuse a text whose label nobody has been taught."""
    unknown = [place for place, name in enumerate(survey.names) if name not in names]
    if unknown:
        index = int(np.flatnonzero(survey.kept & np.isin(survey.labels, unknown))[0])
        label = survey.names[int(survey.labels[index])]
        known = ", ".join(names[:20])
        raise DataError(f"{survey.where(index)}: nothing was trained on the label '{label}'; the labels are: {known}")


@dataclass(frozen=True, eq=False)
class LabelledBatch:
    """Texts of similar length as one padded array of ids: `<s>`, the text, `</s>`."""

    ids: NDArray[np.int64]
    """(pieces, time), padded on the right."""
    lengths: NDArray[np.int64]
    """Tokens of each row, padding not counted."""
    labels: NDArray[np.int64]
    """The label of each text."""
    owners: NDArray[np.int64] | None
    """Which text each row is a piece of, where there are more rows than texts."""
    indices: NDArray[np.int64]
    """Where each text comes from."""

    @property
    def num_answers(self) -> int:
        """One for each text."""
        return len(self.labels)

    @property
    def is_full(self) -> bool:
        """Whether no row has padding, so that no mask is needed."""
        return bool((self.lengths == self.ids.shape[1]).all())


class LabelledTexts:
    """Labelled texts as a classifier's examples; in training one piece of a long text is drawn each time."""

    def __init__(
        self,
        texts: TokenisedTexts,
        names: Sequence[str],
        long_texts: LongTexts,
        *,
        in_training: bool,
        drop_tokens: float = 0.0,
    ) -> None:
        self.texts, self.names, self.long_texts = texts, tuple(names), long_texts
        """The names are those of the labels, which are counted from 0."""
        self._drop = drop_tokens if in_training else 0.0
        read = np.minimum(texts.lengths, long_texts.room).astype(np.int64) + 2
        self._lengths = read if in_training else read * long_texts.num_pieces(texts.lengths)

    def __len__(self) -> int:
        return len(self.texts.tags)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens that are read of each, with `<s>` and `</s>` around every piece."""
        return self._lengths

    @property
    def sort_keys(self) -> tuple[Integers, ...]:
        return (self._lengths,)

    @property
    def answers(self) -> NDArray[np.int64]:
        return np.ones(len(self), dtype=np.int64)

    @property
    def work(self) -> NDArray[np.int64]:
        return self._lengths

    @property
    def num_long(self) -> int:
        """How many texts have more tokens than there is room for."""
        return int(np.count_nonzero(self.texts.lengths > self.long_texts.room))

    def where(self, row: int) -> str:
        """Which of the texts it is."""
        return f"text {self.texts.numbers[row] + 1:,}"

    def ids(self, index: int) -> Integers:
        """The tokens of a whole text."""
        return self.texts.sentences.sentence(index)

    def batch(self, rows: Integers, draw: Draw | None) -> LabelledBatch:
        """Texts, padded to the longest; without a draw all pieces of each, and nothing left out."""
        if draw is None:
            pieces = [self.long_texts.pieces(self.ids(row)) for row in rows]
        else:
            starts = shares(bits(draw, rows, 1, "window"))[:, 0]
            pieces = [[self._drawn(row, float(start), draw)] for row, start in zip(rows, starts, strict=True)]
        owners = np.repeat(np.arange(len(rows)), [len(row) for row in pieces])
        ids, lengths = framed([piece for row in pieces for piece in row])
        return LabelledBatch(
            ids,
            lengths,
            self.texts.tags[rows].astype(np.int64),
            None if len(owners) == len(rows) else owners,
            np.asarray(rows, dtype=np.int64),
        )

    def _drawn(self, row: int, start: float, draw: Draw) -> Integers:
        ids = self.long_texts.drawn(self.ids(row), start)
        if not self._drop:
            return ids
        stays = shares(bits(draw, np.array([row]), len(ids), "drop"))[0] >= self._drop
        return ids[stays] if stays.any() else ids[:1]


def framed(pieces: Sequence[Integers]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pieces of text between `<s>` and `</s>` as one padded array, and the length of each."""
    lengths = np.array([len(piece) + 2 for piece in pieces], dtype=np.int64)
    ids = np.full((len(pieces), lengths.max()), PAD_ID, dtype=np.int64)
    ids[:, 0] = BOS_ID
    for row, piece in enumerate(pieces):
        ids[row, 1 : len(piece) + 1] = piece
    ids[np.arange(len(pieces)), lengths - 1] = EOS_ID
    return ids, lengths
