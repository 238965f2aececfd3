"""Chance follows from seed, epoch, number and purpose, and from nothing else."""

from __future__ import annotations

import numpy as np

from clearhead.data.chance import FIXED, bits, shares
from clearhead.data.examples import Draw


def test_an_examples_bits_do_not_depend_on_its_company() -> None:
    draw = Draw(1, 2)
    together = bits(draw, np.array([5, 9, 7]), 6, "x")
    assert np.array_equal(together[1:2, :4], bits(draw, np.array([9]), 4, "x"))


def test_seed_epoch_number_and_purpose_all_change_them() -> None:
    ways = [
        (Draw(1, 2), 5, "x"),
        (Draw(2, 2), 5, "x"),
        (Draw(1, 3), 5, "x"),
        (Draw(1, 2), 6, "x"),
        (Draw(1, 2), 5, "y"),
    ]
    found = {bits(draw, np.array([number]), 4, purpose).tobytes() for draw, number, purpose in ways}
    assert len(found) == len(ways)


def test_without_a_draw_they_are_always_the_same() -> None:
    assert np.array_equal(bits(None, np.arange(3), 4, "x"), bits(FIXED, np.arange(3), 4, "x"))


def test_shares_are_even() -> None:
    found = shares(bits(Draw(1, 0), np.arange(1000), 20, "x"))
    assert found.min() >= 0 and found.max() < 1
    counts = np.histogram(found, bins=10, range=(0, 1))[0]
    assert abs(counts - 2000).max() < 200
