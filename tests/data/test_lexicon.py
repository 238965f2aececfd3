"""What stands for what, and rare words in the places of others."""

from __future__ import annotations

import pytest

from clearhead.data.lexicon import Entry, Lexicon, Slot, exchanged

NOUNS = {"Hund": "dog", "Ball": "ball", "Fuchs": "fox", "Baum": "tree", "Stuhl": "chair", "Tisch": "table"}
ONCE = [
    ("Tom hat einen Reiskocher gekauft.", "Tom has bought a rice cooker."),
    ("Tom hat einen Apfel gekauft.", "Tom has bought an apple."),
]
AN = [(f"Er hat einen Ofen, {number}.", f"He has an oven, {number}.") for number in range(12)]
"""So many that an is seen to be no word of its own."""
PAIRS = AN + [
    pair
    for number in range(4)
    for noun, its in NOUNS.items()
    for pair in (
        (f"Tom hat einen {noun} gekauft.", f"Tom has bought a {its}."),
        (f"Tom sieht den {noun} dort, {number}.", f"Tom sees the {its} there, {number}."),
    )
]


@pytest.fixture(scope="module")
def lexicon() -> Lexicon:
    return Lexicon.learn(PAIRS + ONCE)


def test_a_word_may_stand_for_several(lexicon: Lexicon) -> None:
    assert lexicon.translations["Reiskocher"] == ("rice cooker",)
    assert lexicon.translations["Hund"] == ("dog",)


def test_only_rare_words_are_brought_elsewhere_and_only_where_they_fit(lexicon: Lexicon) -> None:
    a, an = Slot("einen", "a", "Capital", ""), Slot("einen", "an", "Capital", "")
    assert Entry("Reiskocher", "rice cooker") in lexicon.fitting[a._replace(ending="er")]
    assert lexicon.fitting[an] == (Entry("Apfel", "apple"),)
    assert Entry("Apfel", "apple") not in lexicon.fitting.get(a, ())
    others = [(f"Ja, {number}.", f"Yes, {number}.") for number in range(1000)]
    often = Lexicon.learn(PAIRS * 2 + ONCE + others)
    assert "Hund" in often.translations
    assert not any(entry.word == "Hund" for entries in often.fitting.values() for entry in entries)


def test_an_exchange_changes_both_sides_alike(lexicon: Lexicon) -> None:
    source, target = "Tom hat einen Hund gekauft.", "Tom has bought a dog."
    made = [exchanged(source, target, *choice) for choice in lexicon.exchanges(source, target)]
    assert ("Tom hat einen Fuchs gekauft.", "Tom has bought a fox.") in made
    assert not any("Hund" in there or "dog" in here for there, here in made)
    assert not any("apple" in here for _, here in made)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Hund, Hund, einen Hund!", "Dog, dog, a dog!"),
        ("Hund", "dog"),
        ("Tom sieht einen Hund.", "Tom sees a cat."),
        ("Tom sieht einen Hund.", "Tom sees a dogfight."),
        ("我看见一只狗。", "I see a dog."),
        ("", ""),
    ],
)
def test_where_nothing_is_sure_nothing_is_exchanged(lexicon: Lexicon, source: str, target: str) -> None:
    assert lexicon.exchanges(source, target) == []


def test_texts_without_spaces_and_none_at_all_make_an_empty_lexicon() -> None:
    for pairs in ([], [("我吃了一个苹果。", "I ate an apple.")] * 20):
        assert Lexicon.learn(pairs) == Lexicon({}, {})
