"""Many texts in, the ids of each as bytes out: every word is encoded once and then remembered.

No token of any kind of tokenizer reaches over the border between a word and the single space before the next, so a text
is the sum of its words; but where other white space follows that space, a token may, and such a text is encoded whole.
Language repeats itself: looking words up is several times as fast as encoding them anew.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

import tokenizers

MOST_WORDS = 500_000
"""When so many are remembered, those that are not used again before as many new ones have come are forgotten."""

LONGEST_WORD = 24
"""Longer ones are rarely words: a whole sentence in Chinese, an address on the net."""


class Packer:
    """The ids of texts, end to end in the type given, such as "<u2"."""

    def __init__(self, engine: tokenizers.Tokenizer, dtype: str) -> None:
        self._engine = engine
        self._letter = {"<u2": "H", "<u4": "I"}[dtype]
        self._first = _Memory()
        self._later = _Memory()
        """Words by what follows the space before them."""

    def pack(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text."""
        for memory in (self._first, self._later):
            memory.age()
        rows = [self._recall(text) for text in texts]
        unknown = [place for place, row in enumerate(rows) if row is None]
        if unknown:
            self._learn([texts[place] for place in unknown])
            for place in unknown:
                rows[place] = self._recall(texts[place])
            strange = [place for place in unknown if rows[place] is None]
            for place, row in zip(strange, self._encode([texts[place] for place in strange]), strict=True):
                rows[place] = row
        return [row for row in rows if row is not None]

    def _recall(self, text: str) -> bytes | None:
        first, *later = text.split(" ")
        try:
            # A sentence that follows another begins with a space: its first word is a later one.
            start = self._first.young[first] if first else b""
            return start + b"".join(map(self._later.young.__getitem__, later))
        except KeyError:
            return None

    def _learn(self, texts: Sequence[str]) -> None:
        # Two spaces in a row, or one at the end, leave an empty word; such texts are encoded whole, and so are those in
        # which other white space follows a space: it is never remembered.
        words = [text.split(" ") for text in texts]
        first = self._first.missing({line[0] for line in words})
        later = self._later.missing({word for line in words for word in line[1:] if not word[:1].isspace()})
        self._first.young.update(zip(first, self._encode(first), strict=True))
        self._later.young.update(zip(later, self._encode([f" {word}" for word in later]), strict=True))

    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        encoded = self._engine.encode_batch_fast(list(texts), add_special_tokens=False)
        rows = [array(self._letter, one.ids) for one in encoded]
        if sys.byteorder == "big":
            for row in rows:
                row.byteswap()
        return [row.tobytes() for row in rows]


class _Memory:
    """Words in two generations: what is used passes into the younger one, and the older one is dropped."""

    def __init__(self) -> None:
        self.young: dict[str, bytes] = {}
        self._old: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self.young) + len(self._old)

    def age(self) -> None:
        """Begin a new generation, if this one is large enough."""
        if len(self.young) >= MOST_WORDS // 2:
            self._old, self.young = self.young, {}

    def missing(self, words: set[str]) -> list[str]:
        """Which of some words are to be learnt; those of the older generation come back into the younger one."""
        words -= self.young.keys()
        known = words & self._old.keys()
        self.young.update((word, self._old[word]) for word in known)
        return [word for word in words - known if 0 < len(word) <= LONGEST_WORD]
