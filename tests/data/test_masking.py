"""What is asked for and what is shown in its place: the counts are exact, the shares those of the paper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.chance import bits
from clearhead.data.examples import Draw
from clearhead.data.masking import Masked, masked, num_asked
from clearhead.text import SPECIALS

VOCAB = 50


def some(length: int, count: int, begins: np.ndarray | None = None, number: int = 0) -> tuple[np.ndarray, Masked]:
    ids = np.arange(length) % (VOCAB - len(SPECIALS)) + len(SPECIALS)
    order, form = (bits(Draw(1, 0), np.array([number]), length, purpose)[0] for purpose in ("order", "form"))
    return ids, masked(ids, count, begins, order, form, VOCAB)


@given(st.integers(1, 60), st.integers(0, 20), st.booleans(), st.data())
def test_as_many_are_asked_for_as_should_be(length: int, number: int, whole: bool, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, length))
    begins = np.array(data.draw(st.lists(st.integers(0, 1), min_size=length, max_size=length))) if whole else None
    ids, found = some(length, count, begins, number)
    assert found.asked.sum() == count
    assert not (found.hidden & ~found.asked).any()
    changed = found.ids != ids
    assert not (changed & ~found.asked).any() and not (changed & found.hidden).any()
    assert found.ids.min() >= len(SPECIALS) and found.ids.max() < VOCAB


def test_the_shares_are_those_of_the_paper() -> None:
    hidden = changed = asked = 0
    for number in range(200):
        ids, found = some(100, 100, number=number)
        asked += int(found.asked.sum())
        hidden += int(found.hidden.sum())
        changed += int((found.ids != ids).sum())
    assert hidden / asked == pytest.approx(0.8, abs=0.01)
    # One replacement in 46 hits upon the same token.
    assert changed / asked == pytest.approx(0.1 * 45 / 46, abs=0.01)


def test_words_are_asked_for_whole_but_for_the_last() -> None:
    begins = np.array([1, 0, 0, 1, 0, 1, 1, 0, 0, 0, 1, 0])
    words = np.cumsum(begins)
    broken = 0
    for number in range(50):
        _, found = some(12, 6, begins, number)
        shares = [found.asked[words == word].mean() for word in range(1, 6)]
        torn = [share for share in shares if 0 < share < 1]
        assert len(torn) <= 1
        broken += len(torn)
    assert broken < 50


def test_a_share_of_the_tokens_is_asked_for_and_at_least_one() -> None:
    assert num_asked(np.array([1, 3, 20, 100]), 0.15).tolist() == [1, 1, 3, 15]
