"""Altered copies of training pairs: which pairs have them, and what they look like."""

from __future__ import annotations

import pytest

from clearhead.data.augment import ALTERATIONS, Augment, altered

PAIRS = [(f"Wo ist Haus {number}?", f"Where is house {number}?") for number in range(1000)]


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
