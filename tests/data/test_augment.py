"""Altered copies of training pairs: which pairs have them, and what they look like."""

from __future__ import annotations

import re

import pytest

from clearhead.data.augment import ALTERATIONS, Alterer, Augment

PAIRS = [(f"Wo ist Tom, Haus {number}?", f"Where is Tom, house {number}?") for number in range(1000)]
TO_LEARN = [
    (f"Das ist, ja, {noun} {number}.", f"That is, yes, {its} {number}.")
    for noun, its, times in (("Haus", "house", 9), ("Zelt", "tent", 5), ("Schloss", "castle", 3))
    for number in range(times)
]


def altered(source: str, target: str, augment: Augment, seed: int) -> list[tuple[str, str]]:
    return list(Alterer(augment, seed, lambda: TO_LEARN).altered(source, target))


def test_every_alteration_has_its_share() -> None:
    assert set(ALTERATIONS) == set(Augment.model_fields)
    assert list(altered(*PAIRS[0], Augment(), seed=1)) == []


@pytest.mark.parametrize("name", ALTERATIONS)
def test_the_share_is_kept_and_follows_texts_and_seed(name: str) -> None:
    augment = Augment(**{name: 0.2})
    chosen = [[pair for pair in PAIRS if list(altered(*pair, augment, seed))] for seed in (1, 1, 2)]
    assert 150 < len(chosen[0]) < 250
    assert chosen[0] == chosen[1] != chosen[2]


def test_alterations_leave_the_meaning() -> None:
    assert list(altered("Wo bist du?", "Where are you?", Augment(bare=1.0, lower=1.0), 1)) == [
        ("Wo bist du", "Where are you"),
        ("wo bist du?", "Where are you?"),
    ]


@pytest.mark.parametrize("pair", [("你好", "Hello"), ("。", "."), ("ja", "Yes")])
def test_nothing_is_seen_twice_or_empty(pair: tuple[str, str]) -> None:
    assert list(altered(*pair, Augment(bare=1.0, lower=1.0), 1)) == []


@pytest.mark.parametrize(
    ("source", "target", "shape"),
    [
        ("Tom sah Tom.", "Tom saw Tom.", r"(\w+) sah \1\.|(\w+) saw \2\."),
        ("Ich kenne Toms Frau, Toms Sohn und Tom.", "I know Tom's wife, Tom's son and Tom.", r".*"),
        ("Maria mag Bonn.", "Mary likes Bonn.", r"Maria mag (\w+)\.|Mary likes (\w+)\."),
    ],
)
def test_a_name_is_exchanged_for_the_same_one_wherever_it_stands(source: str, target: str, shape: str) -> None:
    ((there, here),) = altered(source, target, Augment(names=1.0), 1)
    for text in (there, here):
        assert re.fullmatch(shape, text)
        assert "Tom" not in text and "Bonn" not in text
    new = (set(re.findall(r"\w+", here)) - set(re.findall(r"\w+", target))).pop()
    assert new[0].isupper() and new[1:].islower()
    assert there.count(new) == here.count(new) >= 1


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Maria schläft.", "Mary sleeps."),
        ("Tom sah Tom.", "Tom saw himself."),
        ("Die Tomaten sind rot.", "Tom is red."),
        ("汤姆在哪里？", "Where is Tom?"),
    ],
)
def test_what_is_not_spelt_alike_on_both_sides_is_no_name(source: str, target: str) -> None:
    assert list(altered(source, target, Augment(names=1.0), 1)) == []


@pytest.mark.parametrize(
    ("source", "target", "shape"),
    [
        ("Im Jahr 1985, ja, 1985.", "In 1985, yes, 1985.", r"(?:Im Jahr|In) (1\d{3}), (?:ja|yes), \1\."),
        ("他有12本书。", "He has 12 books.", r"他有(1\d)本书。|He has (1\d) books\."),
        ("Um 14:35 Uhr.", "At 2:35 p.m.", r"Um 14:3\d Uhr\.|At 2:3\d p\.m\."),
    ],
)
def test_digits_are_exchanged_alike_on_both_sides(source: str, target: str, shape: str) -> None:
    found = [pair for seed in "abcdef" for pair in altered(source, target + seed, Augment(numbers=1.0), 1)]
    assert len(found) > 3
    for there, here in found:
        assert re.fullmatch(shape, there) and re.fullmatch(shape, here[:-1])
        assert re.findall(r"\d\d+", there)[-1] == re.findall(r"\d\d+", here)[-1]


@pytest.mark.parametrize(
    ("source", "target"),
    [("Um 14 Uhr.", "At 2 p.m."), ("Mit 30 von 30.", "With 30 of them."), ("2 Hunde", "2 dogs"), ("Wo?", "Where?")],
)
def test_digits_that_differ_and_single_ones_stay(source: str, target: str) -> None:
    assert altered(source, target, Augment(numbers=1.0), 1) == []


def test_invented_names_are_many() -> None:
    found = {here for pair in PAIRS for _, here in altered(*pair, Augment(names=1.0), 1)}
    assert len({text.split()[2] for text in found}) > 900
