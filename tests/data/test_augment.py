"""Altered copies of training pairs: which pairs have them, and what they look like."""

from __future__ import annotations

import re

import pytest

from clearhead.data.augment import ALTERATIONS, Augment, altered

PAIRS = [(f"Wo ist Tom, Haus {number}?", f"Where is Tom, house {number}?") for number in range(1000)]


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


def test_invented_names_are_many() -> None:
    found = {here for pair in PAIRS for _, here in altered(*pair, Augment(names=1.0), 1)}
    assert len({text.split()[2] for text in found}) > 900
