"""IDX files or a folder of pictures for each class in, pictures of one size out, or one clear line with the bad file.

A new kind of picture set is one class and one line in PICTURE_SETS.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from clearhead.data.corpus import cache_key
from clearhead.data.idx import read_idx
from clearhead.data.naming import label_of
from clearhead.data.picture_reading import GREY, SMOOTH, Form, digest_of, pillow, read_picture, reading, upright
from clearhead.errors import ConfigError, DataError, MissingInputError
from clearhead.storage import storage_error

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
"""What the names of pictures end with."""


class Picture(NamedTuple):
    """One picture and the place of its label."""

    pixels: NDArray[np.uint8]
    """(channels, height, width)"""
    label: int


class Glance(NamedTuple):
    """What one picture is, as it lies there."""

    where: str
    label: int
    form: Form | None
    """None if it cannot be read."""
    digest: int
    """A hash of its pixels."""
    complaint: str = ""
    """What is wrong with it."""


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

    def glances(self) -> Iterator[Glance]:
        """All pictures in order as they are, those that cannot be read too."""

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
                pixels = np.asarray(pillow().fromarray(pixels).resize((form.width, form.height), SMOOTH))
            yield Picture(np.repeat(pixels[None], form.channels, axis=0), int(label))

    def glances(self) -> Iterator[Glance]:
        form = self.form(None, None)
        for number, (pixels, label) in enumerate(zip(self._images, self._labels, strict=True), start=1):
            yield Glance(f"{self.name}, picture {number:,}", int(label), form, digest_of(form, pixels))

    def fingerprint(self) -> str:
        sums = (hashlib.sha256(part.tobytes()).hexdigest() for part in (self._images, self._labels))
        return cache_key("idx", str(self._images.shape), *sums, *self.labels)

    def notes(self) -> list[str]:
        return [self._resized] if self._resized else []

    def remarks(self) -> list[str]:
        return []


class Folder:
    """A folder for each class, a file for each picture in it, of any depth of folders."""

    def __init__(self, path: Path, labels: Path | None = None, names: tuple[str, ...] = ()) -> None:
        if labels is not None:
            raise ConfigError(f"{path} is a folder, whose folders are the labels: leave out {labels}")
        if not path.is_dir():
            raise MissingInputError(f"there is no folder {path}")
        self.name = str(path)
        pillow()
        try:
            folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
            found = {label_of(path, folder.name): _files_in(folder) for folder in folders}
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
            with reading(path) as image:
                width, height = upright(image)
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

    def glances(self) -> Iterator[Glance]:
        for path, label in self._files:
            try:
                with reading(path) as image:
                    (width, height), channels = upright(image), 1 if image.mode in GREY else 3
                form = Form(height, width, channels)
                yield Glance(str(path), label, form, digest_of(form, read_picture(path, form)[0]))
            except DataError as error:
                yield Glance(str(path), label, None, 0, str(error))

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


def _files_in(folder: Path) -> list[Path]:
    """All files below a folder but hidden ones, by name; one that cannot be read is not passed over in silence."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name) for name in names if not name.startswith(".")]
    return sorted(path for path in found if path.is_file())


def _refuse(error: OSError) -> NoReturn:
    raise error


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS


PICTURE_SETS: dict[str, Callable[[Path, Path | None, tuple[str, ...]], PictureSet]] = {
    "idx": IdxFiles,
    "folder": Folder,
}
"""Each is given its place, that of the labels where these are elsewhere, and the names of the labels if they are known.
"""
