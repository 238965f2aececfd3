"""The words of two sides of many pairs in, which word goes with which out.

IBM model 1, both ways (Brown et al. 1993), smoothed so that rare words do not gather what is left over (Moore 2004).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data.examples import Integers

Chances = NDArray[np.float64]
Small = NDArray[np.int32]

_ROUNDS = 5
_SMOOTHING = 0.01


class Words(NamedTuple):
    """The words of many texts of one side, as numbers from 1; 0 is no word."""

    numbers: Integers
    starts: Integers
    """Where each text begins, and where the last one ends."""
    num_different: int

    @classmethod
    def of(cls, texts: Sequence[Sequence[str]]) -> Words:
        """Number words in the order in which they come; case tells nothing."""
        known: dict[str, int] = {}
        numbers = [known.setdefault(word.lower(), len(known) + 1) for text in texts for word in text]
        starts = np.concatenate(([0], np.cumsum([len(text) for text in texts])))
        return cls(np.array(numbers), starts, len(known) + 1)


def linked(source: Words, target: Words) -> Iterator[tuple[list[int], list[int]]]:
    """For each pair the place in the source of each target word, and the other way round; -1 for no place.

    >>> pairs = [("der Hund", "the dog"), ("der Ball", "the ball"), ("ein Hund", "a dog")]
    >>> sides = (Words.of([text.split() for text in side]) for side in zip(*pairs))
    >>> next(linked(*sides))
    ([0, 1], [0, 1])
    """
    forth, back = Meetings.of(source, target), Meetings.of(target, source)
    for_target, for_source = chances(forth), chances(back)
    there = _best(forth, for_target, _turned(back, for_source, forth))
    here = _best(back, for_source, _turned(forth, for_target, back))
    for pair in range(len(source.starts) - 1):
        yield (
            there[target.starts[pair] : target.starts[pair + 1]].tolist(),
            here[source.starts[pair] : source.starts[pair + 1]].tolist(),
        )


class Meetings(NamedTuple):
    """Each asked word beside no word, then beside each given word of its pair."""

    num_given: Integers
    """Beside how many each asked word is, no word included."""
    begins: Integers
    """Where those of each asked word begin."""
    places: Small
    """Of the given word in its text; -1 for no word."""
    kinds: Small
    """Which of the different meetings it is."""
    given: Integers
    """The word of each different meeting; they are in order of it, then of the asked one."""
    asked: Integers
    num_asked: int
    """How many different words are asked about, one more for no word."""

    @classmethod
    def of(cls, given: Words, asked: Words) -> Meetings:
        """All that meet in the pairs."""
        many, few = np.diff(given.starts), np.diff(asked.starts)
        num_given = np.repeat(many + 1, few)
        begins = np.cumsum(num_given) - num_given
        places = (np.arange(num_given.sum()) - np.repeat(begins, num_given) - 1).astype(np.int32)
        where = np.repeat(np.repeat(given.starts[:-1], few), num_given)
        where += np.maximum(places, 0)
        keys = np.where(places < 0, 0, given.numbers[where])
        keys *= asked.num_different
        keys += np.repeat(asked.numbers, num_given)
        del where
        different, kinds = np.unique(keys, return_inverse=True)
        words = np.divmod(different, asked.num_different)
        return cls(num_given, begins, places, kinds.astype(np.int32), *words, asked.num_different)

    def spread(self, of_asked: Chances) -> Chances:
        """A number for each asked word, as many times as it meets another."""
        return np.repeat(of_asked, self.num_given)


def chances(meetings: Meetings) -> Chances:
    """How likely the asked word of each different meeting is, given the other."""
    likely = np.ones(len(meetings.given))
    for _ in range(_ROUNDS):
        each = likely[meetings.kinds]
        each /= meetings.spread(np.add.reduceat(each, meetings.begins))
        times = np.bincount(meetings.kinds, each, len(likely))
        of_given = np.bincount(meetings.given, times)
        likely = (times + _SMOOTHING) / (of_given + _SMOOTHING * meetings.num_asked)[meetings.given]
    return likely


def _turned(there: Meetings, likely: Chances, here: Meetings) -> Chances:
    """What is likely there of each different meeting here, with given and asked exchanged; 0 beside no word."""
    keys = there.given * there.num_asked + there.asked
    wanted = here.asked * there.num_asked + here.given
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, likely[at], 0.0)


def _best(meetings: Meetings, likely: Chances, likely_back: Chances) -> Small:
    """Where the word is that each asked one goes with best, both ways together; -1 where no word explains it better."""
    each = likely[meetings.kinds]
    beside_none = meetings.spread(each[meetings.begins])
    scores = np.where(each > beside_none, each * likely_back[meetings.kinds], -2.0)
    scores[meetings.begins] = -1.0
    is_best = scores == meetings.spread(np.maximum.reduceat(scores, meetings.begins))
    asked = np.repeat(np.arange(len(meetings.begins), dtype=np.int32), meetings.num_given)
    _, first = np.unique(asked[is_best], return_index=True)
    return meetings.places[is_best][first]
