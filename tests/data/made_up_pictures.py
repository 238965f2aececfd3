"""Pictures the tests make themselves: stripes that run down or across, which a small model can tell apart."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def stripes(count: int, side: int = 8, kinds: int = 2, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Noisy pictures, and for each 0 if its stripes run down, 1 if across, 2 if it is a chessboard."""
    chance = np.random.default_rng(seed)
    labels = np.arange(count) % kinds
    down, across = np.indices((side, side))
    patterns = np.stack([across % 4 < 2, down % 4 < 2, (down // 2 + across // 2) % 2 == 0])
    pixels = 160 * patterns[labels] + chance.integers(0, 80, (count, side, side))
    return pixels.astype(np.uint8), labels.astype(np.uint8)


def write_idx(path: Path, numbers: NDArray[np.uint8]) -> Path:
    """An IDX file, gzipped if its name says so."""
    header = struct.pack(f">BBBB{numbers.ndim}I", 0, 0, 8, numbers.ndim, *numbers.shape)
    data = header + numbers.tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_folder(path: Path, pixels: NDArray[np.uint8], labels: NDArray[np.uint8], names: tuple[str, ...]) -> Path:
    """A folder for each class, a PNG for each picture."""
    from PIL import Image

    for number, (picture, label) in enumerate(zip(pixels, labels, strict=True)):
        folder = path / names[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / f"{number:03}.png")
    return path
