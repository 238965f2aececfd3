"""Which word goes with which: model 1 as its authors write it is the oracle."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from clearhead.data.linking import Meetings, Words, chances, linked

NOUNS = {"Hund": "dog", "Ball": "ball", "Fuchs": "fox", "Baum": "tree", "Reiskocher": "rice cooker", "Stuhl": "chair"}
VERBS = {"sehe": "see", "kenne": "know", "male": "paint"}
PAIRS = [
    (f"ich {verb} den {noun}", f"I {its_verb} the {its_noun}")
    for verb, its_verb in VERBS.items()
    for noun, its_noun in NOUNS.items()
]


def sides(pairs: list[tuple[str, str]]) -> tuple[Words, Words]:
    source, target = (Words.of([text.split() for text in side]) for side in zip(*pairs, strict=True))
    return source, target


def by_hand(pairs: list[tuple[str, str]], rounds: int = 5, smoothing: float = 0.01) -> dict[tuple[str, str], float]:
    """How likely a target word is, given a source word or none."""
    texts = [(["", *source.lower().split()], target.lower().split()) for source, target in pairs]
    num_asked = len({word for _, target in texts for word in target}) + 1
    likely: dict[tuple[str, str], float] = defaultdict(lambda: 1.0)
    for _ in range(rounds):
        times: dict[tuple[str, str], float] = defaultdict(float)
        for source, target in texts:
            for asked in target:
                whole = sum(likely[given, asked] for given in source)
                for given in source:
                    times[given, asked] += likely[given, asked] / whole
        of_given: dict[str, float] = defaultdict(float)
        for (given, _), number in times.items():
            of_given[given] += number
        likely = defaultdict(float)
        for (given, asked), number in times.items():
            likely[given, asked] = (number + smoothing) / (of_given[given] + smoothing * num_asked)
    return likely


def test_chances_are_those_of_model_1() -> None:
    source, target = sides(PAIRS)
    meetings = Meetings.of(source, target)
    found = chances(meetings)
    there, here = (
        ["", *dict.fromkeys(word.lower() for pair in PAIRS for word in pair[side].split())] for side in (0, 1)
    )
    likely = by_hand(PAIRS)
    assert len(found) == len(likely)
    for given, asked, chance in zip(meetings.given, meetings.asked, found, strict=True):
        assert chance == pytest.approx(likely[there[given], here[asked]], rel=1e-9)


def test_words_are_linked_both_ways() -> None:
    for (source, target), (to_source, to_target) in zip(PAIRS, linked(*sides(PAIRS)), strict=True):
        words, others = source.split(), target.split()
        assert len(to_source) == len(others) and len(to_target) == len(words)
        noun = words[3]
        assert [words[place] for place in to_source[3:]] == [noun] * len(NOUNS[noun].split())
        assert others[to_target[3]] in NOUNS[noun].split()
        assert others[to_target[1]] == VERBS[words[1]]


def test_a_rare_word_does_not_gather_what_others_explain() -> None:
    once = ("ich sehe den Pelikan", "I see the pelican")
    *_, (to_source, _) = linked(*sides([*PAIRS, once]))
    assert 3 not in to_source[:3] and to_source[3] == 3


def test_what_no_word_explains_has_no_place() -> None:
    pairs = [(f"wort{number}", f"do word{number}") for number in range(20)]
    for to_source, to_target in linked(*sides(pairs)):
        assert to_source == [-1, 0]
        assert to_target == [1]


def test_a_pair_of_single_words() -> None:
    assert list(linked(*sides([("ja", "yes")]))) in ([([0], [0])], [([-1], [-1])])
    source, target = sides([("ja", "yes")])
    assert np.isfinite(chances(Meetings.of(source, target))).all()
