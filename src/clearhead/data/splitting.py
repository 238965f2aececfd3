"""Sentences as token ids in, the same sentences in smaller pieces out: what teaches a model how words are made up.

A rare word is learnt from few sentences, its parts from many; a model that has seen words in one piece now and in
several then knows that they are the same (after BPE-dropout, arXiv 1910.13267, which leaves out merges at random).
Here pieces are taken apart after the fact, so that a corpus is tokenised once, and what is drawn follows from the draw
and the sentence's number alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clearhead.data.chance import bits, shares
from clearhead.data.examples import Draw, Integers
from clearhead.errors import ConfigError
from clearhead.text import Tokenizer


class Splitting:
    """Each piece is seen as the two it was merged from with a certain chance, and so is each of these."""

    def __init__(self, tokenizer: Tokenizer, chance: float, longest: int) -> None:
        """`longest` is how many tokens a sentence may have: one that would grow longer stays as it is."""
        self._halves = np.array(tokenizer.halves(), dtype=np.int64)
        self._chance, self._longest = chance, longest
        if not (self._halves >= 0).any():
            raise ConfigError(
                f"data.split_pieces: a '{tokenizer.kind}' tokenizer has no pieces to split; use tokenizer.kind = 'bpe'"
            )

    def split(self, sentences: Sequence[Integers], numbers: Integers, draw: Draw) -> list[Integers]:
        """Sentences as they are seen this time; `numbers` are theirs in the set."""
        lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
        ids = np.concatenate(sentences).astype(np.int64)
        owners = np.repeat(np.arange(len(lengths)), lengths)
        untried = np.ones(len(ids), dtype=np.bool_)
        for again in itertools.count():
            dice = shares(bits(draw, numbers, int(lengths.max()), f"split {again}"))
            places = np.arange(len(ids)) - (np.cumsum(lengths) - lengths)[owners]
            cut = untried & (self._halves[ids, 0] >= 0) & (dice[owners, places] < self._chance)
            grown = lengths + np.bincount(owners[cut], minlength=len(lengths))
            cut &= (grown <= self._longest)[owners]
            if not cut.any():
                return np.split(ids, np.cumsum(lengths)[:-1])
            ids, owners, untried = self._cut(ids, cut), np.repeat(owners, 1 + cut), np.repeat(cut, 1 + cut)
            lengths = np.bincount(owners, minlength=len(lengths))
        raise AssertionError("a piece is made of ever smaller ones")

    def _cut(self, ids: NDArray[np.int64], cut: NDArray[np.bool_]) -> NDArray[np.int64]:
        sizes = 1 + cut
        firsts = (np.cumsum(sizes) - sizes)[cut]
        found = np.repeat(ids, sizes)
        found[firsts], found[firsts + 1] = self._halves[ids[cut]].T
        return found
