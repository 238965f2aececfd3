"""Texts in, how many words they are made of out, and how much of them a vocabulary of so many words would cover."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from clearhead.text.words import joiner_marks

SIZES = (1_000, 4_000, 16_000, 64_000)
MOST_DIFFERENT = 1_000_000
"""When there are more, those met only once so far are forgotten, but for their number."""


@dataclass(frozen=True)
class Coverage:
    """What texts are made of, as the word tokenizer splits them."""

    words: int
    different: int
    once: int
    """How many different words occur only once."""
    characters: int
    """How many different characters there are."""
    shares: dict[int, float]
    """The share of all words that so many of the most frequent are."""
    unknown: float | None = None
    """The share of the words in other texts, to validate on, that do not occur in these."""

    def lines(self) -> list[str]:
        """The same for people."""
        found = [
            f"{self.words:,} words, {self.different:,} different, {self.once:,} of them only once; "
            f"{self.characters:,} different characters"
        ]
        if self.shares:
            covered = ", ".join(f"{size:,} words {100 * share:.1f} %" for size, share in self.shares.items())
            found.append(f"a vocabulary would cover: {covered}")
        if self.unknown is not None:
            found.append(f"{100 * self.unknown:.1f} % of the words to validate on do not occur in training")
        return found


class WordCount:
    """Counts the words of one text after the other."""

    def __init__(self) -> None:
        self.words: Counter[str] = Counter()
        self.alphabet: set[str] = set()
        self._forgotten = 0
        self._marks = joiner_marks()

    def add(self, text: str) -> None:
        """Count the words of a text."""
        self.words.update(self._marks.normalize_str(text).split())
        self.alphabet.update(text)
        if len(self.words) > MOST_DIFFERENT:
            kept = Counter({word: count for word, count in self.words.items() if count > 1})
            self._forgotten += len(self.words) - len(kept)
            self.words = kept

    def coverage(self, validation: WordCount | None = None) -> Coverage:
        """What a vocabulary would cover of these texts, and how much of others is unknown to it."""
        total = self.words.total() + self._forgotten
        ranked = sorted(self.words.values(), reverse=True)
        shares, covered, done = {}, 0, 0
        for size in (size for size in SIZES if size < len(ranked)):
            covered, done = covered + sum(ranked[done:size]), size
            shares[size] = covered / total
        unknown = None
        if validation is not None and (others := validation.words.total() + validation._forgotten):
            unknown = 1 - sum(count for word, count in validation.words.items() if word in self.words) / others
        return Coverage(
            words=total,
            different=len(ranked) + self._forgotten,
            once=ranked.count(1) + self._forgotten,
            characters=len(self.alphabet),
            shares=shares,
            unknown=unknown,
        )
