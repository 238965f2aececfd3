"""Data settings in, documents out; cut into sentences and tokenised, they are the examples of a BERT.

A document is cut into spans: neighbouring sentences that fit into a model's length together. A span is shown as it is,
or, to ask what follows what, as two segments, cut between two sentences: the second is then as often as not the end of
a span of another document, as long as the true one, so that nothing but the meaning tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from clearhead.config import one_of
from clearhead.data.chance import bits, shares
from clearhead.data.examples import Draw, Integers
from clearhead.data.masking import ASKED, Masked, masked, num_asked
from clearhead.data.naming import NamedFiles
from clearhead.data.number_split import Split
from clearhead.data.sentences import sentences
from clearhead.data.spans import Spans
from clearhead.data.tables import Column, open_table
from clearhead.data.texts import Survey, Texts, kept_texts
from clearhead.data.tokenised import Tagged
from clearhead.errors import ConfigError
from clearhead.text import BOS_ID, EOS_ID, PAD_ID

KINDS = ("lines", "tsv", "csv", "jsonl", "folder")


class DocumentConfig(NamedFiles):
    """Where documents come from, and how they are shown."""

    FILES = ("train", "validation")

    kind: Annotated[str, one_of(KINDS, "kind of documents")] | None = None
    """`lines` (one document a line), `tsv`, `csv`, `jsonl` (one in a column or key of each) or `folder` (one a file);
    left out, the names of the files tell."""

    train: str | list[str] | None = None
    """The documents to train on: a file, plain or gzip, or a folder, or several of them."""

    validation: str | list[str] | None = None
    """The documents to validate on; left out, some are held out of those to train on."""

    text: Column = "text"
    """The column of the documents: its name in the first line, its key in JSON, or its number from 1."""

    hold_out: int | float | None = Field(default=None, gt=0)
    """Without validation data: how many documents to set aside for validation, as a count or as a share below 1; left
    out, 5 % and at most 2,000."""

    max_chars: int = Field(default=900_000, ge=1)
    """Documents with more characters are left out."""

    drop_duplicates: bool = True
    """Leave out documents that came before."""

    asked: float = Field(default=ASKED, gt=0, lt=1)
    """Share of tokens that are asked for: of these 80 % are hidden, 10 % replaced, 10 % shown as they are."""

    whole_words: bool = False
    """Ask for all pieces of a word at once."""

    pack: bool = False
    """Put several short texts into one row; they do not see each other."""


def open_documents(config: DocumentConfig, split: Split) -> Texts | None:
    """The documents of a split; validation is None if not given, training documents must be there."""
    names = {"train": config.train, "validation": config.validation, "test": None}[split]
    if not names:
        if split == "train":
            raise ConfigError("no training data: set data.train to a file or folder of documents")
        return None
    paths = map(config.path, [names] if isinstance(names, str) else names)
    tables = [open_table(path, (config.text,), config.kind, KINDS) for path in paths]
    return Texts(tables, labelled=False, one_line=False)


def document_sentences(survey: Survey, chosen: NDArray[np.bool_] | None = None) -> Iterator[Tagged]:
    """The sentences of kept documents, each twice with its document's number: as its place and as its tag."""
    for number, document in kept_texts(survey, chosen):
        for sentence in sentences(document):
            yield number, number, sentence.replace("\n", " ")


@dataclass(frozen=True, eq=False)
class MaskedBatch:
    """Texts with some of their tokens hidden, as padded arrays of (rows, time).

    A text is `<s>`, its first segment, `</s>`, and, if there is one, its second segment and `</s>`.
    """

    ids: NDArray[np.int64]
    hidden: NDArray[np.bool_]
    """Which tokens the model does not see."""
    asked: NDArray[np.bool_]
    """Which tokens it is to name."""
    answers: NDArray[np.int64]
    """What those are, row by row."""
    segments: NDArray[np.int64]
    """0 or 1."""
    texts: NDArray[np.int64]
    """Which text of its row each token belongs to, padding to none (-1)."""
    firsts: NDArray[np.int64]
    """Row and column of the `<s>` of every text."""
    follows: NDArray[np.int64]
    """For every text 1 if its second segment follows its first, 0 if it is from elsewhere, -1 if there is none."""
    weights: NDArray[np.int64]
    """How many tokens of every text are asked for."""

    @property
    def num_answers(self) -> int:
        """The tokens that are asked for."""
        return len(self.answers)

    @property
    def is_full(self) -> bool:
        """Whether there is no padding, so that no mask is needed."""
        return bool((self.texts >= 0).all())

    @property
    def is_packed(self) -> bool:
        """Whether a row holds several texts, which must be kept apart."""
        return len(self.firsts) > len(self.ids)


class MaskedDocuments:
    """Spans of documents as a BERT's examples: each row one span, or as many short ones as it has room for."""

    def __init__(self, spans: Spans, *, vocab_size: int, asked: float, next_sentence: bool, pack: bool) -> None:
        self.spans, self.vocab_size, self.next_sentence = spans, vocab_size, next_sentence
        self._num_asked = num_asked(spans.lengths, asked)
        # `<s>` and one `</s>` for each segment.
        sizes = spans.lengths.astype(np.int64) + 2 + (spans.are_divisible & next_sentence)
        self.rows = packed(sizes, spans.max_len) if pack else [np.array([span]) for span in range(len(spans))]
        """The spans of each example."""
        self._lengths = np.array([sizes[row].sum() for row in self.rows], dtype=np.int64)
        self._answers = np.array([self._num_asked[row].sum() for row in self.rows], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each, control tokens included; a drawn second segment may make it shorter."""
        return self._lengths

    @property
    def sort_keys(self) -> tuple[Integers, ...]:
        return (self._lengths,)

    @property
    def answers(self) -> NDArray[np.int64]:
        """Tokens of each that are asked for."""
        return self._answers

    @property
    def work(self) -> NDArray[np.int64]:
        return self._lengths

    def where(self, row: int) -> str:
        """The documents that its spans are of."""
        documents = dict.fromkeys(self.spans.document(int(span)) for span in self.rows[row])
        return " and ".join(f"document {number + 1:,}" for number in documents)

    def batch(self, rows: Integers, draw: Draw | None) -> MaskedBatch:
        """Draw what is hidden and what follows, and pad; without a draw it is always the same."""
        numbers = np.concatenate([self.rows[row] for row in rows])
        order, form = (bits(draw, numbers, self.spans.max_len, purpose) for purpose in ("order", "form"))
        pairs = bits(draw, numbers, 16, "pair")
        texts = [
            self._text(int(number), order[place], form[place], pairs[place]) for place, number in enumerate(numbers)
        ]
        owners = np.repeat(np.arange(len(rows)), [len(self.rows[row]) for row in rows])
        return _padded(texts, owners, len(rows))

    def _text(
        self, number: int, order: NDArray[np.uint64], form: NDArray[np.uint64], pair: NDArray[np.uint64]
    ) -> _Text:
        count = int(self._num_asked[number])
        if not (self.next_sentence and self.spans.are_divisible[number]):
            first = self.spans.whole(number)
            found = masked(first.ids, count, first.begins, order, form, self.vocab_size)
            return _Text(found, np.asarray(first.ids), len(first.ids), count, -1)
        first, second, is_next = self.spans.divided(number, shares(pair), count)
        both = np.concatenate([first.ids, second.ids])
        begins = None
        if first.begins is not None and second.begins is not None:
            begins = np.concatenate([first.begins, second.begins])
        found = masked(both, count, begins, order, form, self.vocab_size)
        return _Text(found, both, len(first.ids), count, int(is_next))


@dataclass(frozen=True, eq=False)
class _Text:
    """One text before it is padded."""

    masked: Masked
    true_ids: Integers
    first: int
    """Tokens of the first segment; the rest is the second."""
    count: int
    follows: int

    @property
    def size(self) -> int:
        return len(self.true_ids) + (2 if self.follows < 0 else 3)


def _padded(texts: Sequence[_Text], owners: Integers, num_rows: int) -> MaskedBatch:
    sizes = np.array([text.size for text in texts])
    width = int(np.bincount(owners, weights=sizes).max())
    shape = num_rows, width
    ids, true_ids = np.full(shape, PAD_ID, dtype=np.int64), np.full(shape, PAD_ID, dtype=np.int64)
    hidden, asked = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    segments, numbers = np.zeros(shape, dtype=np.int64), np.full(shape, -1, dtype=np.int64)
    firsts = np.empty((len(texts), 2), dtype=np.int64)
    ends, counts = np.zeros(num_rows, dtype=np.int64), np.zeros(num_rows, dtype=np.int64)
    for place, (text, row) in enumerate(zip(texts, owners, strict=True)):
        start = ends[row]
        stop = start + text.size
        firsts[place] = row, start
        numbers[row, start:stop] = counts[row]
        ids[row, start] = BOS_ID
        # The two segments, each without what stands around it.
        middle = start + 1 + text.first
        for part, at in ((slice(None, text.first), start + 1), (slice(text.first, None), middle + 1)):
            here = slice(at, at + len(text.true_ids[part]))
            ids[row, here], true_ids[row, here] = text.masked.ids[part], text.true_ids[part]
            hidden[row, here], asked[row, here] = text.masked.hidden[part], text.masked.asked[part]
        ids[row, middle] = ids[row, stop - 1] = EOS_ID
        segments[row, middle + 1 : stop] = 1
        ends[row], counts[row] = stop, counts[row] + 1
    return MaskedBatch(
        ids,
        hidden,
        asked,
        true_ids[asked],
        segments,
        numbers,
        firsts,
        np.array([text.follows for text in texts], dtype=np.int64),
        np.array([text.count for text in texts], dtype=np.int64),
    )


def packed(sizes: Integers, room: int) -> list[NDArray[np.int64]]:
    """Which go into one row together, none over `room`: the largest first, each where it just fits.

    >>> [row.tolist() for row in packed(np.array([5, 3, 9, 4, 2]), 9)]
    [[2], [0, 3], [1, 4]]
    """
    rows: list[list[int]] = []
    by_space: dict[int, list[int]] = {}
    # A bit for every space that some row has left: the lowest that is large enough is found at once.
    spaces = 0
    for number in np.argsort(-np.asarray(sizes), kind="stable").tolist():
        size = int(sizes[number])
        fitting = spaces >> size
        if fitting:
            space = size + (fitting & -fitting).bit_length() - 1
            row = by_space[space].pop()
            if not by_space[space]:
                spaces &= ~(1 << space)
        else:
            space, row = room, len(rows)
            rows.append([])
        rows[row].append(number)
        by_space.setdefault(space - size, []).append(row)
        spaces |= 1 << (space - size)
    return [np.array(row, dtype=np.int64) for row in rows]
