"""Distortions: each does what it says, all follow from the draw alone, and a label is never changed with them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from clearhead.data.distortion import DICE, DISTORTIONS, LARGEST_HOLE, Distort, distorted, erase, flip, shift
from clearhead.data.examples import Draw

COUNT, CHANNELS, HEIGHT, WIDTH = 40, 2, 7, 9
AT_WORK = {"shift": Distort(shift=2), "flip": Distort(flip=0.5), "erase": Distort(erase=1.0)}


def some_pixels() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (COUNT, CHANNELS, HEIGHT, WIDTH)).astype(np.uint8)


def dice(*rows: float) -> NDArray[np.float64]:
    return np.array([[*rows, *[0.0] * (DICE - len(rows))]])


def test_every_distortion_is_tried() -> None:
    assert AT_WORK.keys() == DISTORTIONS.keys()
    assert set(Distort.model_fields) == DISTORTIONS.keys()


@pytest.mark.parametrize("name", DISTORTIONS)
def test_a_distortion_follows_from_draw_and_number_alone(name: str) -> None:
    pixels, numbers, draw = some_pixels(), np.arange(100, 100 + COUNT), Draw(7, 3)
    once = distorted(pixels, AT_WORK[name], draw, numbers)
    assert once.shape == pixels.shape and once.dtype == np.uint8
    assert np.array_equal(distorted(pixels, AT_WORK[name], draw, numbers), once)
    order = np.random.default_rng(1).permutation(COUNT)[:5]
    assert np.array_equal(distorted(pixels[order], AT_WORK[name], draw, numbers[order]), once[order])
    for other in (Draw(7, 4), Draw(8, 3)):
        assert not np.array_equal(distorted(pixels, AT_WORK[name], other, numbers), once)


def test_nothing_asked_for_is_nothing_done() -> None:
    pixels = some_pixels()
    assert np.array_equal(distorted(pixels, Distort(), Draw(0, 0), np.arange(COUNT)), pixels)


@pytest.mark.parametrize(
    ("first", "second", "down", "across"), [(0.0, 0.99, -1, 1), (0.5, 0.5, 0, 0), (0.7, 0.0, 1, -1)]
)
def test_shifting_moves_and_repeats_the_edge(first: float, second: float, down: int, across: int) -> None:
    pixels = some_pixels()[:1]
    moved = shift(pixels, 1, dice(first, second))
    for row in range(HEIGHT):
        for column in range(WIDTH):
            there = min(max(row + down, 0), HEIGHT - 1), min(max(column + across, 0), WIDTH - 1)
            assert np.array_equal(moved[0, :, row, column], pixels[0, :, there[0], there[1]])


def test_flipping_mirrors_left_and_right() -> None:
    pixels = some_pixels()[:1]
    assert np.array_equal(flip(pixels, 0.5, dice(0.4)), pixels[..., ::-1])
    assert np.array_equal(flip(pixels, 0.5, dice(0.6)), pixels)


def test_half_of_all_pictures_are_flipped() -> None:
    pixels = np.repeat(some_pixels()[:1], 2_000, axis=0)
    flipped = distorted(pixels, Distort(flip=0.5), Draw(1, 1), np.arange(2_000))
    share = (flipped != pixels).any((1, 2, 3)).mean()
    assert 0.45 < share < 0.55


def test_erasing_fills_a_rectangle_with_the_mean() -> None:
    pixels = some_pixels()[:1]
    cut = erase(pixels, 1.0, dice(0.0, 0.99, 0.99, 0.5, 0.5))
    changed = (cut != pixels).any(1)[0]
    rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
    assert 0 < len(rows) <= np.ceil(LARGEST_HOLE * HEIGHT) and 0 < len(columns) <= np.ceil(LARGEST_HOLE * WIDTH)
    mean = pixels[0].mean((1, 2)).round()
    assert np.array_equal(cut[0, :, rows[0], columns[0]], mean)
    assert np.array_equal(erase(pixels, 0.5, dice(0.6, 0.99, 0.99)), pixels)
