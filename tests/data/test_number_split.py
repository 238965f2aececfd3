"""Numbers are dealt to train, validation and test once and for all."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest

from clearhead.data.number_split import Split, sample_numbers, split_of

SPLITS: tuple[Split, ...] = get_args(Split)


def test_each_split_gets_about_its_share() -> None:
    counts = Counter(split_of(number) for number in range(100_000))
    assert counts["train"] == pytest.approx(80_000, rel=0.02)
    assert counts["validation"] == pytest.approx(10_000, rel=0.05)
    assert counts["test"] == pytest.approx(10_000, rel=0.05)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("largest", [100, 12_345, 999_999, 999_999_999])
def test_a_sample_is_distinct_in_range_and_of_its_split(split: Split, largest: int) -> None:
    numbers = sample_numbers(split, 1_000, largest)
    assert len(set(numbers)) == len(numbers) <= 1_000
    assert all(0 <= number <= largest and split_of(number) == split for number in numbers)
    assert numbers == sample_numbers(split, 1_000, largest)


@pytest.mark.parametrize("largest", [100, 9_999])
def test_a_size_beyond_the_range_takes_all_there_is(largest: int) -> None:
    numbers = [number for split in SPLITS for number in sample_numbers(split, 50_000, largest)]
    assert sorted(numbers) == list(range(largest + 1))


def test_training_covers_all_small_numbers_it_may_see() -> None:
    numbers = set(sample_numbers("train", 20_000, 999_999))
    assert {number for number in range(1_000) if split_of(number) == "train"} <= numbers
    assert set(range(21)) <= numbers


@pytest.mark.parametrize("split", SPLITS)
def test_large_numbers_are_spread_evenly_over_their_digits(split: Split) -> None:
    numbers = sample_numbers(split, 2_000, 999_999)
    digits = Counter(len(str(number)) for number in numbers)
    assert len(numbers) == 2_000
    assert max(digits[4], digits[5], digits[6]) - min(digits[4], digits[5], digits[6]) <= 2


def test_a_sample_comes_in_mixed_order() -> None:
    first = sample_numbers("test", 1_000, 999_999)[:50]
    assert {len(str(number)) for number in first} >= {3, 4, 5, 6}


def test_the_deal_never_changes() -> None:
    """Models trained by one version are tested by the next: a changed deal would leak."""
    assert [number for number in range(100) if split_of(number) == "test"] == [32, 36, 44, 64, 66, 69, 86, 93, 96]
    assert sample_numbers("test", 5, 999_999) == [422, 377648, 9533, 64, 56728]
