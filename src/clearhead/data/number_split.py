"""The name of a split and a size come in; numbers that belong to that split and no other go out, always the same ones.

Where a number belongs depends on the number alone, so no direction and no size ever lets a test number into training.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

Split = Literal["train", "validation", "test"]

_SHARES: dict[Split, float] = {"train": 0.8, "validation": 0.1, "test": 0.1}
# Up to here a number has words of its own (null appears nowhere else), which cannot be guessed if never seen.
_ALWAYS_TRAINED = 20


def split_of(number: int) -> Split:
    """The one split a number belongs to."""
    if number <= _ALWAYS_TRAINED:
        return "train"
    place = _scramble(number) % 10
    return "validation" if place == 0 else "test" if place == 1 else "train"


def sample_numbers(split: Split, size: int, largest: int) -> list[int]:
    """Up to `size` different numbers of a split, as many of each count of digits as can be, in mixed order."""
    numbers: list[int] = []
    ranges = list(_digit_ranges(largest))
    for place, (low, stop) in enumerate(ranges):
        wanted = -(-(size - len(numbers)) // (len(ranges) - place))
        numbers += _draw(split, wanted, low, stop)
    return sorted(numbers[:size], key=lambda number: _scramble(~number))


def _digit_ranges(largest: int) -> Iterator[tuple[int, int]]:
    """The ranges 0-9, 10-99, 100-999 … up to the largest number: small ones are few, so what they leave goes on."""
    low, stop = 0, 10
    while low <= largest:
        yield low, min(stop, largest + 1)
        low, stop = stop, stop * 10


def _draw(split: Split, wanted: int, low: int, stop: int) -> list[int]:
    span = stop - low
    if span * _SHARES[split] < 4 * wanted:
        members = [number for number in range(low, stop) if split_of(number) == split]
        return sorted(members, key=_scramble)[:wanted]
    drawn: dict[int, None] = {}
    attempt = 0
    while len(drawn) < wanted:
        number = low + _scramble(low + attempt) % span
        attempt += 1
        if split_of(number) == split:
            drawn[number] = None
    return list(drawn)


def _scramble(value: int) -> int:
    """A fixed 64-bit shuffle of the integers (splitmix64), the same on every machine and in every version."""
    value = (value + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)
