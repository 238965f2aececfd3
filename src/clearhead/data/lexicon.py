"""Training pairs in, a lexicon of what stands for what out, and with it pairs in which a word gives way to a rare one.

Rare words in new places follow Fadaee et al. 2017, with neighbours in place of a language model to say what fits.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from clearhead.data.linking import Words, linked

Span = tuple[int, int]

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*|\d+|[^\w\s]")
_PLAIN = re.compile(r"[^\W\d_]{2,}(?:-[^\W\d_]+)*")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff]")
_MOST_WORDS = 50
_MOST_TRANSLATED = 3
"""How many words may stand for one: rice cooker for Reiskocher."""
_RARE = 10
"""How often a word is seen that is still to be seen elsewhere."""
_COMMON = 1 / 60
"""In which share of the texts a word stands that is no word of its own, like an article."""
_ENDINGS = ("ing", "ed", "ly", "est", "er", "s")


class Slot(NamedTuple):
    """A kind of place: a word that was seen in one fits into another."""

    before: str
    before_translation: str
    shape: str
    """Of a word with a capital letter only that, of others how they end."""
    ending: str
    """Of the translation: most of what tells one form from another in English, and nothing in many a language."""


class Entry(NamedTuple):
    """A word and what stands for it."""

    word: str
    translation: str


class Place(NamedTuple):
    """Where an entry stands in a pair, by letters."""

    entry: Entry
    slot: Slot
    at: Span
    translation_at: Span


class Spaced(NamedTuple):
    """A pair, and where its words are."""

    texts: tuple[str, str]
    spans: tuple[list[Span], list[Span]]

    @classmethod
    def of(cls, texts: tuple[str, str]) -> Spaced | None:
        """A pair with spaces between its words, not too many of them."""
        source, target = ([found.span() for found in _WORD.finditer(text)] for text in texts)
        fits = all(0 < len(side) <= _MOST_WORDS for side in (source, target)) and all(map(is_spaced, texts))
        return cls(texts, (source, target)) if fits else None

    def words(self, side: int) -> list[str]:
        """All of one side."""
        text = self.texts[side]
        return [text[begin:end] for begin, end in self.spans[side]]


@dataclass(frozen=True)
class Lexicon:
    """What stands for what, and where rare words fit."""

    translations: dict[str, tuple[str, ...]]
    fitting: dict[Slot, tuple[Entry, ...]]
    """Entries of rare words by the kinds of places they were seen in."""

    @classmethod
    def learn(cls, pairs: Iterable[tuple[str, str]]) -> Lexicon:
        """From pairs of texts; those without spaces between words, and very long ones, tell nothing."""
        known = [pair for pair in map(Spaced.of, pairs) if pair is not None]
        if not known:
            return cls({}, {})
        there, here = ([pair.words(side) for pair in known] for side in (0, 1))
        common = _common(here)
        links = linked(Words.of(there), Words.of(here))
        places = [place for pair, link in zip(known, links, strict=True) for place in _places(pair, link, common)]
        return cls.of(places, Counter(chain.from_iterable(map(set, there))))

    @classmethod
    def of(cls, places: Sequence[Place], seen: Mapping[str, int]) -> Lexicon:
        """From where entries stand, and from how many texts each word is in."""
        found, of_word = Counter(place.entry for place in places), Counter(place.entry.word for place in places)
        translations: dict[str, list[str]] = defaultdict(list)
        fitting: dict[Slot, dict[Entry, None]] = defaultdict(dict)
        for entry, times in found.items():
            if times >= of_word[entry.word] / 5:
                translations[entry.word].append(entry.translation)
        for entry, slot, *_ in places:
            is_sure = found[entry] >= max(of_word[entry.word] / 2, seen[entry.word] / 3)
            if is_sure and seen[entry.word] <= _RARE:
                fitting[slot][entry] = None
        return cls(
            {word: tuple(texts) for word, texts in translations.items()},
            {slot: tuple(entries) for slot, entries in fitting.items()},
        )

    def exchanges(self, source: str, target: str) -> list[tuple[Place, Entry]]:
        """What may be exchanged in a pair, and for what: each word that stands there once, as does its translation."""
        pair = Spaced.of((source, target))
        if pair is None:
            return []
        words, others = pair.words(0), pair.words(1)
        begins = {begin: number for number, (begin, _) in enumerate(pair.spans[1])}
        ends = {end for _, end in pair.spans[1]}
        found = []
        for number, word in enumerate(words):
            if not number or words.count(word) > 1:
                continue
            for translation in self.translations.get(word, ()):
                begin = target.find(translation)
                span = begin, begin + len(translation)
                if target.count(translation) != 1 or not begins.get(begin) or span[1] not in ends:
                    continue
                before = words[number - 1], others[begins[begin] - 1]
                place = _place(Entry(word, translation), before, pair.spans[0][number], span)
                found += [(place, entry) for entry in self.fitting.get(place.slot, ()) if entry.word != word]
        return found

    def spread(self, pairs: Iterable[tuple[str, str]], most: int, seed: int) -> Iterator[tuple[str, str]]:
        """Pairs with a rare word in the place of another, for each rare word the same number if there are so many.

        Which of all places a word is put in follows from the seed and the order of the pairs.
        """
        dice = random.Random(seed)
        times: Counter[Entry] = Counter()
        chosen: dict[Entry, list[tuple[str, str]]] = defaultdict(list)
        for source, target in pairs:
            for place, entry in self.exchanges(source, target):
                times[entry] += 1
                made = chosen[entry]
                # Each place so far is among the chosen with the same chance (reservoir sampling).
                which = len(made) if len(made) < most else dice.randrange(times[entry])
                if which < most and (pair := exchanged(source, target, place, entry)) not in made:
                    made[which : which + 1] = [pair]
        yield from chain.from_iterable(chosen.values())


def exchanged(source: str, target: str, place: Place, entry: Entry) -> tuple[str, str]:
    """The pair with the entry in that place."""
    (begin, end), (begin_there, end_there) = place.at, place.translation_at
    return (
        source[:begin] + entry.word + source[end:],
        target[:begin_there] + entry.translation + target[end_there:],
    )


def is_spaced(text: str) -> bool:
    """Whether there are spaces between the words of a text.

    >>> is_spaced("Wo bist du?"), is_spaced("你在哪里？")
    (True, False)
    """
    return _UNSPACED.search(text) is None


def _places(pair: Spaced, links: tuple[list[int], list[int]], common: set[str]) -> Iterator[Place]:
    """The words of a pair that have a translation of their own: up to three in a row, none of them common.

    First words are left out, for they may have capital letters for that reason alone.
    """
    words, others = pair.words(0), pair.words(1)
    to_source, to_target = links
    for number, word in enumerate(words):
        row = [place for place, other in enumerate(to_source) if other == number]
        if not number or to_target[number] not in row or not row[0]:
            continue
        if len(row) > _MOST_TRANSLATED or row[-1] - row[0] >= len(row):
            continue
        translation = others[row[0] : row[-1] + 1]
        if len(word) < 3 or not all(map(_PLAIN.fullmatch, (word, *translation))) or not translation[0][0].islower():
            continue
        if not common.isdisjoint(text.lower() for text in translation):
            continue
        span = pair.spans[1][row[0]][0], pair.spans[1][row[-1]][1]
        entry = Entry(word, pair.texts[1][slice(*span)])
        yield _place(entry, (words[number - 1], others[row[0] - 1]), pair.spans[0][number], span)


def _place(entry: Entry, before: tuple[str, str], at: Span, translation_at: Span) -> Place:
    shape = "Capital" if entry.word[0].isupper() else entry.word[-2:]
    ending = next((ending for ending in _ENDINGS if entry.translation.endswith(ending)), "")
    return Place(entry, Slot(before[0].lower(), before[1].lower(), shape, ending), at, translation_at)


def _common(texts: Sequence[Sequence[str]]) -> set[str]:
    """Words that stand in so many texts that they are hardly the translation of a single word."""
    times = Counter(chain.from_iterable({word.lower() for word in text} for text in texts))
    return {word for word, number in times.items() if number > max(10, _COMMON * len(texts))}
