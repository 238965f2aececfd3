"""Many texts in, the ids of each as bytes out: every word is encoded once and then remembered.

No token of any kind of tokenizer reaches over the border between a word and the single space before the next, so a text
is the sum of its words. Language repeats itself: looking words up is several times as fast as encoding them anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tokenizers

MOST_WORDS = 400_000
"""When so many are remembered, remembering begins anew: about 100 MB."""

LONGEST_WORD = 24
"""Longer ones are rarely words: a whole sentence in Chinese, an address on the net."""


class Packer:
    """The ids of texts, end to end in the type given, such as "<u2"."""

    def __init__(self, engine: tokenizers.Tokenizer, dtype: str) -> None:
        self._engine = engine
        self._dtype = dtype
        self._first: dict[str, bytes] = {}
        self._later: dict[str, bytes] = {}
        """Words by what follows the space before them."""

    def pack(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text."""
        if len(self._first) + len(self._later) > MOST_WORDS:
            self._first.clear()
            self._later.clear()
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
            return self._first[first] + b"".join(map(self._later.__getitem__, later))
        except KeyError:
            return None

    def _learn(self, texts: Sequence[str]) -> None:
        # Two spaces in a row, or one at an end, leave an empty word; such texts are encoded whole.
        words = [text.split(" ") for text in texts]
        first = list({line[0] for line in words if 0 < len(line[0]) <= LONGEST_WORD} - self._first.keys())
        later = list(
            {word for line in words for word in line[1:] if 0 < len(word) <= LONGEST_WORD} - self._later.keys()
        )
        self._first.update(zip(first, self._encode(first), strict=True))
        self._later.update(zip(later, self._encode([f" {word}" for word in later]), strict=True))

    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        encoded = self._engine.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(one.ids, dtype=self._dtype).tobytes() for one in encoded]
