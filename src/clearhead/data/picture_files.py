"""IDX files or a folder of pictures for each class in, pictures of one size out, or one clear line with the bad file.

A new kind of picture set is one class and one line in PICTURE_SETS.
"""

from __future__ import annotations

import hashlib
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from clearhead.data.corpus import cache_key
from clearhead.data.idx import read_idx
from clearhead.errors import ConfigError, DataError, MissingInputError, UnavailableError
from clearhead.storage import storage_error

if TYPE_CHECKING:
    from PIL.Image import Image

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
"""What the names of pictures end with."""
GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F")
"""Pillow's modes without colour."""


class Form(NamedTuple):
    """What every picture of a set is like."""

    height: int
    width: int
    channels: int

    def __str__(self) -> str:
        return f"{self.height} x {self.width}, {'grey' if self.channels == 1 else 'coloured'}"


class Picture(NamedTuple):
    """One picture and the place of its label."""

    pixels: NDArray[np.uint8]
    """(channels, height, width)"""
    label: int


class PictureSet(Protocol):
    """Pictures with labels that can be read again and again."""

    @property
    def name(self) -> str:
        """What to call it in messages."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels by number, as far as the set names them."""

    def __len__(self) -> int: ...

    def form(self, size: tuple[int, int] | None, channels: int | None) -> Form:
        """What the pictures will be like, in this size and with so many channels where these are given."""

    def pictures(self, form: Form) -> Iterator[Picture]:
        """All pictures in order, in one form."""

    def fingerprint(self) -> str:
        """The same for the same content, different otherwise."""

    def notes(self) -> list[str]:
        """What the latest full reading changed."""

    def remarks(self) -> list[str]:
        """What else there is to say, without any reading."""


class IdxFiles:
    """Pictures in one IDX file, their labels in another."""

    def __init__(self, images: Path, labels: Path | None, names: tuple[str, ...] = ()) -> None:
        if labels is None:
            raise ConfigError(f"{images} holds pictures only: name the IDX file of their labels too")
        self.name = str(images)
        self._images = read_idx(images, 3, "pictures")
        self._labels = read_idx(labels, 1, "labels")
        count, height, width = self._images.shape
        if len(self._labels) != count:
            raise DataError(f"{images} has {count:,} pictures, and {labels} has {len(self._labels):,} labels")
        if not count or not height or not width:
            raise DataError(f"{images} has no pictures: it is {count} x {height} x {width}")
        self.labels = names or tuple(str(number) for number in range(int(self._labels.max()) + 1))
        beyond = np.flatnonzero(self._labels >= len(self.labels))
        if len(beyond):
            where = f"{labels}, picture {beyond[0] + 1:,}: label {self._labels[beyond[0]]}"
            raise DataError(f"{where} is none of 0 to {len(self.labels) - 1}, the labels there are")
        self._resized = ""

    def __len__(self) -> int:
        return len(self._labels)

    def form(self, size: tuple[int, int] | None, channels: int | None) -> Form:
        height, width = size or self._images.shape[1:]
        return Form(height, width, channels or 1)

    def pictures(self, form: Form) -> Iterator[Picture]:
        height, width = self._images.shape[1:]
        self._resized = ""
        if (height, width) != form[:2]:
            self._resized = f"resized all {len(self):,} pictures from {height} x {width} to {form[0]} x {form[1]}"
        for pixels, label in zip(self._images, self._labels, strict=True):
            if self._resized:
                pixels = np.asarray(_pillow().fromarray(pixels).resize((form.width, form.height), _SMOOTH))
            yield Picture(np.repeat(pixels[None], form.channels, axis=0), int(label))

    def fingerprint(self) -> str:
        sums = (hashlib.sha256(part.tobytes()).hexdigest() for part in (self._images, self._labels))
        return cache_key("idx", str(self._images.shape), *sums, *self.labels)

    def notes(self) -> list[str]:
        return [self._resized] if self._resized else []

    def remarks(self) -> list[str]:
        return []


class Folder:
    """A folder for each class, a file for each picture."""

    def __init__(self, path: Path, labels: Path | None = None, names: tuple[str, ...] = ()) -> None:
        if labels is not None:
            raise ConfigError(f"{path} is a folder, whose folders are the labels: leave out {labels}")
        if not path.is_dir():
            raise MissingInputError(f"there is no folder {path}")
        self.name = str(path)
        _pillow()
        try:
            folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
            found = {folder.name: sorted(filter(_is_shown, folder.iterdir())) for folder in folders}
        except OSError as error:
            raise storage_error(path, error) from None
        if not found:
            raise DataError(f"{path} has no folders in it: put the pictures of each class into a folder of its own")
        known = {name: [file for file in files if _is_picture(file)] for name, files in found.items()}
        empty = [name for name, files in known.items() if not files]
        if empty:
            endings = ", ".join(ENDINGS)
            raise DataError(f"{path / empty[0]} has no pictures in it (names that end with one of {endings})")
        self.labels = names or tuple(known)
        unknown = [name for name in known if name not in self.labels]
        if unknown:
            some = ", ".join(self.labels[:20])
            raise DataError(f"{path / unknown[0]}: nothing was trained on the label '{unknown[0]}'; they are: {some}")
        self._files = [(file, self.labels.index(name)) for name, files in known.items() for file in files]
        self._others = [file for files in found.values() for file in files if not _is_picture(file)]
        self._changed: list[tuple[Path, tuple[int, int]]] = []
        self._to = ""

    def __len__(self) -> int:
        return len(self._files)

    def form(self, size: tuple[int, int] | None, channels: int | None) -> Form:
        sizes: dict[tuple[int, int], Path] = {}
        has_colour = False
        for path, _ in self._files:
            with _reading(path) as image:
                width, height = _upright(image)
                sizes.setdefault((height, width), path)
                has_colour = has_colour or image.mode not in GREY
        if size is None and len(sizes) > 1:
            (one, first), (other, second) = list(sizes.items())[:2]
            two = f"{first} is {one[0]} x {one[1]} and {second} {other[0]} x {other[1]}"
            raise DataError(
                f"pictures of {len(sizes):,} sizes: {two}; "
                f"set data.size, such as [{min(one[0], other[0])}, {min(one[1], other[1])}], and all are resized to it"
            )
        height, width = size or next(iter(sizes))
        return Form(height, width, channels or (3 if has_colour else 1))

    def pictures(self, form: Form) -> Iterator[Picture]:
        self._changed, self._to = [], f"{form.height} x {form.width}"
        for path, label in self._files:
            pixels, (height, width) = read_picture(path, form)
            if (height, width) != form[:2]:
                self._changed.append((path, (height, width)))
            yield Picture(pixels, label)

    def fingerprint(self) -> str:
        sums = []
        for path, label in self._files:
            with path.open("rb") as file:
                sums.append(f"{label} {hashlib.file_digest(file, 'sha256').hexdigest()}")
        return cache_key("folder", *self.labels, *sums)

    def notes(self) -> list[str]:
        if not self._changed:
            return []
        path, (height, width) = self._changed[0]
        many = f"{len(self._changed):,} of {len(self):,} pictures to {self._to}"
        return [f"resized {many}, first {path}, which is {height} x {width}"]

    def remarks(self) -> list[str]:
        if not self._others:
            return []
        return [f"left out {len(self._others):,} files whose names are not those of pictures: {self._others[0]}"]


def read_picture(path: Path, form: Form) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """One picture file in a form, as (channels, height, width), and the height and width it had."""
    with _reading(path) as opened:
        from PIL import ImageOps

        image = ImageOps.exif_transpose(opened)
        size = image.height, image.width
        image = _plain(image, form.channels)
        if size != form[:2]:
            image = image.resize((form.width, form.height), _SMOOTH)
        pixels = np.asarray(image, dtype=np.uint8)
    return (pixels[None] if form.channels == 1 else np.moveaxis(pixels, 2, 0)), size


def _plain(image: Image, channels: int) -> Image:
    """Grey or coloured in eight bits; what can be seen through is laid on white."""
    if image.mode.startswith("I;16") or image.mode == "I":
        # Sixteen bits in thirty-two: Pillow alone would cut off all that is brighter than 255.
        wide = np.asarray(image, dtype=np.int64)
        image = _pillow().fromarray((wide.clip(0, 65535) // 257).astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        seen = image.convert("RGBA")
        image = _pillow().new("RGBA", seen.size, "white")
        image.alpha_composite(seen)
    return image.convert("L" if channels == 1 else "RGB")


def _upright(image: Image) -> tuple[int, int]:
    """Width and height of a picture as it is to be seen: a camera may have stored it lying on its side."""
    return image.size[::-1] if image.getexif().get(0x0112, 1) in (5, 6, 7, 8) else image.size


@contextmanager
def _reading(path: Path) -> Iterator[Image]:
    """An open picture; whatever Pillow says of what it finds in there becomes one line with the file's name."""
    pillow = _pillow()
    try:
        with warnings.catch_warnings():
            # A picture of a billion pixels is a mistake or an attack; Pillow only warns of it at first.
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            with pillow.open(path) as image:
                yield image
    except FileNotFoundError:
        raise MissingInputError(f"there is no picture {path}") from None
    except (pillow.DecompressionBombWarning, pillow.DecompressionBombError) as error:
        raise DataError(f"{path} is not a picture that can be read: {error}") from None
    except _unidentified():
        raise DataError(
            f"{path} is not a picture that can be read: it is damaged, or not in any format that Pillow knows"
        ) from None
    except (OSError, SyntaxError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise DataError(f"{path} is not a picture that can be read: {reason}") from None
    except (EOFError, struct.error):
        raise DataError(f"{path} is not a picture that can be read: it is damaged") from None


def _is_shown(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".")


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS


_SMOOTH = 2
"""Pillow's number for bilinear resizing, which averages over all pixels when it makes smaller."""


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise UnavailableError("reading pictures needs Pillow: pip install 'clearhead[pictures]'") from None
    return Image


def _unidentified() -> type[Exception]:
    from PIL import UnidentifiedImageError

    return UnidentifiedImageError


PICTURE_SETS: dict[str, Callable[[Path, Path | None, tuple[str, ...]], PictureSet]] = {
    "idx": IdxFiles,
    "folder": Folder,
}
"""Each is given its place, that of the labels where these are elsewhere, and the names of the labels if they are known.
"""
