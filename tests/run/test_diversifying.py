"""More pairs from models: what is new in them, and what is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from clearhead.run.diversifying import Translate, backward, elsewhere, forward, understood

PAIRS = [
    ("Er ist müde.", "He is tired."),
    ("Er ist müde.", "He's tired."),
    ("Sie ist sehr klug.", "She is very clever."),
    ("他很累。", "He is tired."),
]


def saying(**said: str) -> Translate:
    """A translator that says the same of every text that begins with a word."""

    def translate(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
        assert len(set(texts)) == len(texts), "each text is asked for once"
        return ((text, made) for text in texts for begin, made in said.items() if text.startswith(begin))

    return translate


def test_a_source_gets_a_translation_in_other_words() -> None:
    assert list(forward(PAIRS, saying(Sie="She is so clever."))) == []
    assert list(forward([*PAIRS, ("So.", "So.")], saying(Sie="She is so clever."))) == [
        ("Sie ist sehr klug.", "She is so clever.")
    ]


@pytest.mark.parametrize(
    "said",
    ["He is tired!", "he’s tired", "He is tred.", "Clever she is very."],
    ids=["known", "spelt", "no word", "far"],
)
def test_what_is_known_no_word_or_far_from_what_is_known_is_left_out(said: str) -> None:
    assert list(forward(PAIRS, saying(Er=said))) == []


def test_a_target_gets_a_source_in_other_words_however_far_it_is() -> None:
    assert list(backward(PAIRS, saying(He="Er ist sehr klug.", She="Sie ist müde."))) == [
        ("Er ist sehr klug.", "He is tired."),
        ("Er ist sehr klug.", "He's tired."),
        ("Sie ist müde.", "She is very clever."),
    ]


def test_what_is_not_understood_is_left_out() -> None:
    made = [("Er ist so müde.", "He is tired."), ("Sie schläft.", "He is tired."), ("Er ist so müde.", "She sings.")]
    assert list(understood(made, saying(Er="He is so tired.", Sie="She sleeps."))) == made[:1]


def test_names_of_the_other_side_are_words_and_chinese_has_none() -> None:
    assert list(backward(PAIRS, saying(He="He ist müde."))) == [("He ist müde.", "He is tired.")]
    assert list(backward(PAIRS, saying(She="她很聪明。"))) == [("她很聪明。", "She is very clever.")]


def test_every_rare_word_is_put_into_as_many_places_as_others() -> None:
    german = ["Hund", "Hut", "Ball", "Fisch", "Korb", "Baum", "Topf", "Stuhl", "Tisch", "Schuh", "Vogel", "Apfel"]
    english = ["dog", "hat", "ball", "fish", "basket", "tree", "pot", "chair", "table", "shoe", "bird", "apple"]
    verbs = {"sehe": "see", "male": "paint", "suche": "seek", "will": "want"}
    nouns = dict(zip(german, english, strict=True))
    pairs = [
        (f"Ich {verb} den {noun}.", f"I {doing} the {thing}.")
        for noun, thing in nouns.items()
        for verb, doing in verbs.items()
    ]
    found = list(elsewhere(pairs, 2))
    for noun, thing in nouns.items():
        there = [(source, target) for source, target in found if noun in source]
        assert len(set(there)) == 2
        assert all(source.startswith("Ich ") and target.endswith(f"the {thing}.") for source, target in there)
    assert len(found) == 2 * len(nouns)
    assert found == list(elsewhere(pairs, 2))
