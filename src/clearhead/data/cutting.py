"""The tokens of a text in, those that a model has room for out: at once, or in pieces; never unnoticed.

A new way to read long texts is one class and one line in LONG_TEXTS; models name it in their settings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from clearhead.data.examples import Integers
from clearhead.errors import choose


class LongTexts(ABC):
    """How a text with more tokens than there is room for is read."""

    def __init__(self, room: int, head: float) -> None:
        self.room, self.head = room, head

    @abstractmethod
    def num_pieces(self, lengths: Integers) -> NDArray[np.int64]:
        """How many pieces texts of these lengths are read in."""

    @abstractmethod
    def pieces(self, ids: Integers) -> list[Integers]:
        """All that is read of a text."""

    @abstractmethod
    def drawn(self, ids: Integers, chance: float) -> Integers:
        """What one pass of training reads of a text; `chance` is a number from 0 to 1, drawn anew for each."""

    @property
    @abstractmethod
    def meaning(self) -> str:
        """What is read, for people."""


class Ends(LongTexts):
    """The beginning and the end: in reviews, opinions stand there (Sun et al. 2019)."""

    def num_pieces(self, lengths: Integers) -> NDArray[np.int64]:
        return np.ones(len(lengths), dtype=np.int64)

    def pieces(self, ids: Integers) -> list[Integers]:
        if len(ids) <= self.room:
            return [ids]
        return [np.concatenate([ids[: self._first], ids[len(ids) - (self.room - self._first) :]])]

    def drawn(self, ids: Integers, chance: float) -> Integers:
        return self.pieces(ids)[0]

    @property
    def _first(self) -> int:
        return round(self.head * self.room)

    @property
    def meaning(self) -> str:
        return f"their first {self._first} and last {self.room - self._first} are read"


class Windows(LongTexts):
    """All of it, in windows that overlap by a quarter; the last one ends with the text."""

    @property
    def stride(self) -> int:
        """From the beginning of one window to that of the next."""
        return max(1, self.room * 3 // 4)

    def num_pieces(self, lengths: Integers) -> NDArray[np.int64]:
        beyond = np.maximum(0, np.asarray(lengths, dtype=np.int64) - self.room)
        return 1 + -(-beyond // self.stride)

    def pieces(self, ids: Integers) -> list[Integers]:
        last = max(0, len(ids) - self.room)
        starts = [*range(0, last, self.stride), last]
        return [ids[start : start + self.room] for start in starts]

    def drawn(self, ids: Integers, chance: float) -> Integers:
        start = int(chance * (max(0, len(ids) - self.room) + 1))
        return ids[start : start + self.room]

    @property
    def meaning(self) -> str:
        return f"they are read in windows of {self.room}"


LONG_TEXTS: dict[str, type[LongTexts]] = {"ends": Ends, "windows": Windows}


def long_texts(way: str, max_len: int, head: float) -> LongTexts:
    """The way of this name, for a model that reads `max_len` tokens with `<s>` and `</s>` around a text."""
    return choose(LONG_TEXTS, way, "way to read long texts")(max_len - 2, head)
