"""Pictures in, the same pictures a little different out: what keeps a model from learning them by heart.

What is done to a picture follows from the draw and its number alone. A new distortion is one function, one line in
DISTORTIONS, and one setting of the same name.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from clearhead.config import Record
from clearhead.data.chance import bits, shares
from clearhead.data.examples import Draw, Integers

Pixels = NDArray[np.uint8]
"""(pictures, channels, height, width)"""
LARGEST_HOLE = 0.4
"""The sides of what is erased are at most this share of those of the picture."""


class Distort(Record):
    """How pictures are changed each time they are trained on, and never otherwise."""

    shift: int = Field(default=0, ge=0)
    """Moved by up to so many pixels up, down, left or right; the edge is repeated where nothing is left."""

    flip: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share that is mirrored left to right; 0.5 where that makes no difference, 0 for letters and digits."""

    erase: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share that loses a rectangle, which is filled with the picture's own mean."""


def shift(pixels: Pixels, most: float, chance: NDArray[np.float64]) -> Pixels:
    """Move each picture by whole pixels."""
    height, width = pixels.shape[2:]
    steps = np.floor(chance[:, :2] * (2 * int(most) + 1)).astype(np.int64) - int(most)
    down = np.clip(np.arange(height) + steps[:, :1], 0, height - 1)
    across = np.clip(np.arange(width) + steps[:, 1:], 0, width - 1)
    picture, channel = np.arange(len(pixels)), np.arange(pixels.shape[1])
    return pixels[
        picture[:, None, None, None], channel[None, :, None, None], down[:, None, :, None], across[:, None, None, :]
    ]


def flip(pixels: Pixels, share: float, chance: NDArray[np.float64]) -> Pixels:
    """Mirror some pictures."""
    return np.where((chance[:, 0] < share)[:, None, None, None], pixels[..., ::-1], pixels)


def erase(pixels: Pixels, share: float, chance: NDArray[np.float64]) -> Pixels:
    """Cut a rectangle out of some pictures."""
    inside = np.ones((len(pixels), 1, 1), dtype=np.bool_) & (chance[:, 0] < share)[:, None, None]
    for axis, side, place in ((2, 1, 3), (3, 2, 4)):
        length = pixels.shape[axis]
        size = np.ceil(chance[:, side] * LARGEST_HOLE * length)
        first = np.floor(chance[:, place] * (length - size + 1))
        at = np.arange(length)[None, :]
        within = (at >= first[:, None]) & (at < (first + size)[:, None])
        inside = inside & (within[:, :, None] if axis == 2 else within[:, None, :])
    mean = pixels.mean((2, 3), keepdims=True).round().astype(np.uint8)
    return np.where(inside[:, None], mean, pixels)


DISTORTIONS: dict[str, Callable[[Pixels, float, NDArray[np.float64]], Pixels]] = {
    "shift": shift,
    "flip": flip,
    "erase": erase,
}
DICE = 5
"""Random numbers that each distortion has for a picture."""


def distorted(pixels: Pixels, distort: Distort, draw: Draw, numbers: Integers) -> Pixels:
    """Pictures as they are seen this time; `numbers` are theirs in the set."""
    for name, change in DISTORTIONS.items():
        if amount := getattr(distort, name):
            pixels = change(pixels, amount, shares(bits(draw, numbers, DICE, name)))
    return pixels
