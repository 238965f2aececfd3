"""Texts in, their labels out, with probabilities: what all classifiers have in common, and the one over an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from clearhead.data.cutting import LongTexts, long_texts
from clearhead.data.examples import Integers
from clearhead.data.labelled import framed
from clearhead.data.lines import without_controls
from clearhead.engines.directory import Exported
from clearhead.engines.ranking import Flags, Floats, Ids, log_softmax
from clearhead.errors import DataError
from clearhead.text.specials import PAD_ID
from clearhead.text.tokenizer import TokenizerPair, check_encodable
from clearhead.text.turns import next_turn

BATCH_TOKENS = 8192
"""Tokens, padding included, that are read side by side."""
WINDOW = 512
"""Texts read ahead, so that those of a length can go together; memory is bounded by this."""


@dataclass(frozen=True)
class Classified:
    """What a model takes a text for."""

    label: str
    """Empty if the text was."""
    probability: float
    probabilities: dict[str, float]
    """Of every label; of none if there was nothing to read."""
    tokens: int
    """How many the text has ..."""
    read: int
    """... and how many of them were read."""


NOTHING = Classified("", 0.0, {}, 0, 0)


class TextClassifier(ABC):
    """A classifier ready for use, whatever computes."""

    kind: ClassVar[str] = "classifier"

    def __init__(self, tokenizers: TokenizerPair, labels: Sequence[str], cut: LongTexts) -> None:
        self.tokenizers = tokenizers
        self.labels = list(labels)
        """The labels there are."""
        self.long_texts = cut
        """How texts that are too long are read."""
        self.path: Path | None = None
        """Where it was loaded from."""

    @overload
    def classify(self, texts: str) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def classify(self, texts: Iterable[str]) -> list[str]: ...
    def classify(self, texts: str | Iterable[str]) -> str | list[str]:
        """The label of one text or of many; that of an empty text is empty."""
        if isinstance(texts, str):
            return self.classify([texts])[0]
        return [found.label for found in self.stream(texts)]

    def probabilities(self, texts: str | Iterable[str]) -> Any:
        """The probability of every label, for one text as a dictionary, for many as a list of them."""
        if isinstance(texts, str):
            return next(self.stream([texts])).probabilities
        return [found.probabilities for found in self.stream(texts)]

    def stream(self, texts: Iterable[str | None]) -> Iterator[Classified]:
        """What each text is taken for, in order, in constant memory; a None says that no more come for a while."""
        remaining, first = iter(texts), 0
        while window := next_turn(remaining, WINDOW):
            yield from self._window(window, first)
            first += len(window)

    def _window(self, texts: Sequence[str], first: int) -> Iterator[Classified]:
        filled = [row for row, text in enumerate(texts) if text.strip()]
        ids = self.encode([texts[row] for row in filled], [first + row for row in filled])
        cut = self.long_texts
        found = dict(zip(filled, zip(ids, self.judged(ids), strict=True), strict=True))
        for row in range(len(texts)):
            if row not in found:
                yield NOTHING
                continue
            tokens, probs = found[row]
            read = len(tokens) if cut.num_pieces(np.array([len(tokens)]))[0] > 1 else min(len(tokens), cut.room)
            shares = dict(zip(self.labels, probs.tolist(), strict=True))
            yield Classified(self.labels[int(probs.argmax())], float(probs.max()), shares, len(tokens), read)

    def encode(self, texts: Sequence[str], numbers: Sequence[int] | None = None) -> list[Integers]:
        """The ids of texts, or which one of them, by its number from 0, cannot be read."""
        # As in training, where a text is one line without control characters.
        flat = [without_controls(" ".join(text.split("\n"))).strip() for text in texts]
        for number, text in zip(range(len(flat)) if numbers is None else numbers, flat, strict=True):
            try:
                check_encodable([text])
            except DataError as error:
                raise DataError(f"text {number + 1:,}: {error}") from None
        return [np.array(ids, dtype=np.int64) for ids in self.tokenizers.source.encode_batch(flat)]

    def judged(self, texts: Sequence[Integers]) -> NDArray[np.float32]:
        """A row of probabilities for the tokens of each text, however long it is."""
        pieces = [self.long_texts.pieces(ids) for ids in texts]
        owners = np.repeat(np.arange(len(texts)), [len(row) for row in pieces])
        return joined(self.scores([piece for row in pieces for piece in row]), owners, len(texts))

    def scores(self, pieces: Sequence[Integers]) -> Floats:
        """The logits of each piece of text, which must not be too long; those of a length go together."""
        order = np.argsort([len(piece) for piece in pieces], kind="stable")
        logits = np.empty((len(pieces), len(self.labels)), np.float32)
        for rows in _batches(order, [len(piece) + 2 for piece in pieces]):
            ids, lengths = framed([pieces[row] for row in rows])
            logits[rows] = self.logits(ids, None if (lengths == ids.shape[1]).all() else ids != PAD_ID)
        return logits

    @abstractmethod
    def logits(self, ids: Ids, real: Flags | None) -> Floats:
        """The scores of the labels of a batch; `real` marks what is not padding, None when nothing is."""


def joined(logits: Floats, owners: Ids, count: int) -> Floats:
    """The mean probabilities of each text's pieces; `owners` says which text a piece is of.

    >>> logits = np.log(np.array([[0.2, 0.8], [0.6, 0.4], [0.5, 0.5]], np.float32))
    >>> (100 * joined(logits, np.array([0, 0, 1]), 2)).round().astype(int).tolist()
    [[40, 60], [50, 50]]
    """
    total = np.zeros((count, logits.shape[1]), np.float32)
    np.add.at(total, owners, np.exp(log_softmax(logits)))
    # The smallest number and not zero, whose logarithm is not finite.
    mean = total / np.bincount(owners, minlength=count).astype(np.float32)[:, None]
    return np.maximum(mean, np.finfo(np.float32).tiny)


class ReadingEngine(Protocol):
    """What runs an exported model that reads and answers at once."""

    name: str

    def answer(self, **given: NDArray[Any]) -> Floats:
        """The scores of all that may be answered."""


class ExportedClassifier(TextClassifier):
    """A classifier that an engine runs."""

    def __init__(self, engine: ReadingEngine, tokenizers: TokenizerPair, exported: Exported) -> None:
        shape = exported.notes.model
        cut = long_texts(shape["long_texts"], exported.notes.max_len, shape["head"])
        super().__init__(tokenizers, shape["labels"], cut)
        self.engine = engine
        self.path = exported.path

    def logits(self, ids: Ids, real: Flags | None) -> Floats:
        return self.engine.answer(ids=ids, real=np.ones(ids.shape, np.bool_) if real is None else real)


def _batches(order: Integers, sizes: Sequence[int]) -> Iterator[list[int]]:
    """Rows that go together, none of the batches too large."""
    batch: list[int] = []
    for row in order.tolist():
        if batch and (len(batch) + 1) * sizes[row] > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
