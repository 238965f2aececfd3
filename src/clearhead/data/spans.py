"""Tokenised sentences of documents in, spans that a model has room for out: whole, or divided into two segments."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data.examples import Integers
from clearhead.data.tokenised import TokenisedTexts

TRIES = 8
"""How often another document is looked for."""
NEAREST = 1_000
"""Among so many ends of spans of nearly the same length one is drawn."""


class Segment(NamedTuple):
    """Neighbouring tokens of one document."""

    ids: Integers
    begins: Integers | None
    """1 where a word begins, if that is known."""


class Spans:
    """Neighbouring sentences of one document, at most `max_len` tokens with `<s>` and `</s>` around two segments."""

    def __init__(self, texts: TokenisedTexts, max_len: int) -> None:
        self.texts, self.max_len = texts, max_len
        room = max_len - 3
        starts, lengths, documents, self.num_cut = _short_enough(texts, room)
        self._starts, self._lengths, self._documents = starts, lengths, documents
        self._bounds = _grouped(lengths, documents, room)
        """Where among the sentences each span begins, and after the last one where it ends."""
        self.lengths = np.add.reduceat(lengths, self._bounds[:-1]).astype(np.int64)
        """Tokens of each span."""
        self._index_ends()

    def __len__(self) -> int:
        return len(self._bounds) - 1

    @property
    def are_divisible(self) -> NDArray[np.bool_]:
        """Which spans have two sentences or more."""
        return np.diff(self._bounds) > 1

    def document(self, number: int) -> int:
        """The document that a span is of."""
        return int(self._documents[self._bounds[number]])

    def whole(self, number: int) -> Segment:
        """All tokens of a span."""
        return self._segment(int(self._bounds[number]), int(self._bounds[number + 1]))

    def divided(self, number: int, chance: NDArray[np.float64], least: int = 0) -> tuple[Segment, Segment, bool]:
        """A span in two segments, the second its own or, half of the time, another's; and whether it is its own.

        `chance` are numbers from 0 to 1: where to cut, which of the two, and several to draw the other from. Another's
        is not longer and hardly shorter, and both together have `least` tokens or more, if the span has.
        """
        first, last = int(self._bounds[number]), int(self._bounds[number + 1])
        cut = first + 1 + int(chance[0] * (last - first - 1))
        begin, own = self._segment(first, cut), self._segment(cut, last)
        lengths = max(len(own.ids) - len(own.ids) // 2, least - len(begin.ids)), len(own.ids)
        other = self._elsewhere(number, lengths, chance[2 : 2 + TRIES]) if chance[1] < 0.5 else None
        return begin, own if other is None else other, other is None

    def _elsewhere(self, number: int, lengths: tuple[int, int], chance: NDArray[np.float64]) -> Segment | None:
        """The end of a span of another document, of a length from one to another; None if none is found."""
        low, high = np.searchsorted(self._end_lengths, (lengths[0], lengths[1] + 1))
        low = max(low, high - NEAREST)
        document = self.document(number)
        for draw in chance if high > low else ():
            sentence = int(self._ends[low + int(draw * (high - low))])
            if self._documents[sentence] != document:
                span = int(np.searchsorted(self._bounds, sentence, side="right"))
                return self._segment(sentence, int(self._bounds[span]))
        return None

    def _segment(self, first: int, last: int) -> Segment:
        """The tokens of neighbouring sentences, which lie end to end."""
        start, stop = int(self._starts[first]), int(self._starts[last - 1] + self._lengths[last - 1])
        begins = self.texts.begins
        return Segment(self.texts.sentences.ids[start:stop], None if begins is None else begins.ids[start:stop])

    def _index_ends(self) -> None:
        """All ends of spans that leave something before them, by length."""
        after = np.cumsum(self._lengths[::-1])[::-1]
        to_end = after - np.append(after, 0)[np.repeat(self._bounds[1:], np.diff(self._bounds))]
        inner = np.ones(len(to_end), dtype=np.bool_)
        inner[self._bounds[:-1]] = False
        ends = np.flatnonzero(inner)
        self._ends = ends[np.argsort(to_end[ends], kind="stable")]
        self._end_lengths = to_end[self._ends]


def _short_enough(texts: TokenisedTexts, room: int) -> tuple[Integers, Integers, Integers, int]:
    """Starts, lengths and documents of sentences, those over `room` cut into several; and how many were cut."""
    starts, lengths, documents = texts.sentences.starts, texts.lengths.astype(np.int64), texts.tags
    filled = lengths > 0
    starts, lengths, documents = starts[filled], lengths[filled], documents[filled]
    pieces = -(-lengths // room)
    place = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begins = place * room
    whole = np.repeat(lengths, pieces)
    return (
        np.repeat(starts, pieces) + begins,
        np.minimum(room, whole - begins),
        np.repeat(documents, pieces),
        int(np.count_nonzero(pieces > 1)),
    )


def _grouped(lengths: Integers, documents: Integers, room: int) -> NDArray[np.int64]:
    """Where spans begin, each as long as it may be, and the end of the last."""
    bounds: list[int] = []
    document, filled = None, 0
    for number, (length, own) in enumerate(zip(lengths.tolist(), documents.tolist(), strict=True)):
        if own != document or filled + length > room:
            bounds.append(number)
            document, filled = own, 0
        filled += length
    return np.array([*bounds, len(lengths)], dtype=np.int64)
