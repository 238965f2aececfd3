"""Data settings in, pictures with their labels out: decoded once and kept, and dealt out as a ViT's examples."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from clearhead.config import one_of
from clearhead.data import hashes
from clearhead.data.columns import ColumnWriter, read_columns
from clearhead.data.corpus import cache_key, cache_root
from clearhead.data.distortion import Distort, distorted
from clearhead.data.examples import Draw, Integers
from clearhead.data.hashes import Hashes
from clearhead.data.naming import NamedFiles
from clearhead.data.number_split import Split
from clearhead.data.picture_files import PICTURE_SETS, PictureSet
from clearhead.data.picture_reading import Form
from clearhead.errors import ConfigError, DataError, MissingInputError, StorageError

LARGEST_SIDE = 4096


def _height_and_width(size: list[int] | None) -> list[int] | None:
    if size is not None and (len(size) != 2 or min(size) < 1 or max(size) > LARGEST_SIDE):
        raise ValueError(f"size is a height and a width from 1 to {LARGEST_SIDE}, such as [28, 28]")
    return size


class PicturesConfig(NamedFiles):
    """Where pictures come from, and in which form they are used."""

    FILES = (
        "pictures", "picture_labels", "validation_pictures", "validation_picture_labels",
        "test_pictures", "test_picture_labels",
    )  # fmt: skip

    kind: Annotated[str, one_of(PICTURE_SETS, "kind of pictures")] | None = None
    """`idx` (one file of pictures and one of labels, plain or gzip) or `folder` (a folder for each class); left out, a
    folder is a folder and a file is IDX."""

    pictures: str | None = None
    """The pictures to train on: a folder, or an IDX file."""

    picture_labels: str | None = None
    """Their labels, with IDX files."""

    validation_pictures: str | None = None
    """The pictures to validate on; left out, some are held out of those to train on."""

    validation_picture_labels: str | None = None
    """Their labels, with IDX files."""

    test_pictures: str | None = None
    """The pictures of the final test."""

    test_picture_labels: str | None = None
    """Their labels, with IDX files."""

    labels: list[str] = Field(default=[])
    """With IDX files: the names of the labels 0, 1, 2 and so on; left out, these numbers."""

    size: Annotated[list[int] | None, AfterValidator(_height_and_width)] = None
    """Height and width in pixels to which all pictures are resized; left out, they must be of one size."""

    channels: Literal[1, 3] | None = None
    """1 makes all pictures grey, 3 coloured; left out, grey if all are."""

    hold_out: int | float | None = Field(default=None, gt=0)
    """Without validation data: how many pictures to set aside for validation, as a count or as a share below 1; left
    out, 5 % and at most 2,000. With a share, each picture is chosen by itself: more data move none of it."""

    hold_out_test: int | float | None = Field(default=None, gt=0)
    """Without test data: how many pictures to set aside for the final test. They follow from the pictures alone, so
    that no run, whatever its seed, is trained on them."""

    distort: Distort = Distort()
    """How pictures are changed each time they are trained on."""


def open_set(config: PicturesConfig, split: Split, names: tuple[str, ...] = ()) -> PictureSet | None:
    """The pictures of a split; validation and test are None if not given, training pictures must be there.

    `names` are the labels there may be, where these are known from training.
    """
    prefix = "" if split == "train" else f"{split}_"
    images, labels = getattr(config, f"{prefix}pictures"), getattr(config, f"{prefix}picture_labels")
    if images is None:
        if split == "train":
            raise ConfigError(
                "no training data: set data.pictures to a folder with a folder for each class, or an IDX file"
            )
        return None
    path = config.path(images)
    if not path.exists():
        raise MissingInputError(f"there is no file or folder {path}")
    kind = config.kind or ("folder" if path.is_dir() else "idx")
    if config.labels and kind == "folder":
        raise ConfigError("data.labels names the numbers of IDX files, and folders have names: leave it out")
    return PICTURE_SETS[kind](path, config.path(labels) if labels else None, names or tuple(config.labels))


@dataclass(frozen=True, eq=False)
class Pictures:
    """The pictures of a split in one form; the pixels stay on the disk until they are looked at."""

    pixels: NDArray[np.uint8]
    """(pictures, channels, height, width)"""
    labels: NDArray[np.int64]
    sums: Hashes
    """A hash of each picture's pixels."""
    names: tuple[str, ...]
    """The labels by number."""
    form: Form
    at: str
    """Its name in the cache."""
    notes: tuple[str, ...]
    """What a person should know of the reading."""

    def __len__(self) -> int:
        return len(self.labels)

    def counts(self) -> dict[str, int]:
        """How many pictures have each label."""
        return dict(zip(self.names, np.bincount(self.labels, minlength=len(self.names)).tolist(), strict=True))

    @classmethod
    def open(cls, at: str, remarks: tuple[str, ...] = ()) -> Pictures:
        """Map stored pictures into memory, after checking that they are whole."""
        arrays, facts = read_columns(cache_root() / at)
        form = Form(*facts["form"])
        pixels = arrays["pixels"].reshape(-1, form.channels, form.height, form.width)
        names, notes = tuple(facts["names"]), (*facts["notes"], *remarks)
        return cls(pixels, arrays["labels"], arrays["sums"], names, form, at, notes)


def opening(pictures: PictureSet, form: Form) -> Generator[int, None, Pictures]:
    """Open what was decoded before, or decode it: how many pictures are done is yielded, the pictures are returned."""
    at = cache_key("pictures", pictures.fingerprint(), str(form))
    remarks = tuple(pictures.remarks())
    with contextlib.suppress(MissingInputError, StorageError):
        return Pictures.open(at, remarks)
    with ColumnWriter(cache_root() / at, {"pixels": "u1", "labels": "<i8", "sums": "<u8"}) as writer:
        for done, (pixels, label) in enumerate(pictures.pictures(form), start=1):
            data = np.ascontiguousarray(pixels).tobytes()
            writer.append("pixels", data)
            writer.append("labels", np.int64(label).tobytes())
            writer.append("sums", blake2b(data, digest_size=8).digest())
            yield done
        writer.finish({"form": list(form), "names": list(pictures.labels), "notes": pictures.notes()})
    return Pictures.open(at, remarks)


def check_labels(pictures: Pictures, name: str) -> None:
    """Refuse labels that nothing can be learnt from."""
    seen = [label for label, count in pictures.counts().items() if count]
    if len(seen) < 2:
        raise DataError(
            f"{name}: all {len(pictures):,} pictures have the label '{seen[0]}', and a classifier needs two or more"
        )


def check_known(pictures: Pictures, trained: Pictures, name: str) -> None:
    """Refuse a label that nothing was trained on."""
    unknown = np.flatnonzero(~np.isin(pictures.labels, trained.labels))
    if len(unknown):
        label = pictures.names[int(pictures.labels[unknown[0]])]
        known = ", ".join([label for label, count in trained.counts().items() if count][:20])
        raise DataError(
            f"{name}, picture {unknown[0] + 1:,}: nothing was trained on the label '{label}'; the labels are: {known}"
        )


def set_aside(
    pictures: Pictures, config: PicturesConfig, seed: int, *, validate: bool
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which pictures are kept from training, to validate and to test on; equal pictures go together."""
    held = tested = np.zeros(len(pictures), dtype=np.bool_)
    everything = np.ones(len(pictures), dtype=np.bool_)
    words = "pictures", "pictures"
    if config.hold_out_test is not None:
        tested = hashes.hold_out(pictures.sums, everything, config.hold_out_test, hashes.TEST_SEED, *words)
    if validate:
        held = hashes.hold_out(pictures.sums, ~tested, config.hold_out, seed, *words)
    return held, tested


def seen_before(trained: Pictures, held: Pictures) -> int:
    """How many pictures of one set are, pixel by pixel, among those of another."""
    return int(np.count_nonzero(hashes.is_among(held.sums, np.unique(trained.sums))))


def mean_and_spread(pixels: NDArray[np.uint8], rows: Integers) -> tuple[list[float], list[float]]:
    """The mean and the standard deviation of each channel, from 0 to 1, over some pictures."""
    counts = np.zeros((pixels.shape[1], 256), dtype=np.int64)
    for first in range(0, len(rows), 1024):
        some = pixels[rows[first : first + 1024]]
        for channel in range(some.shape[1]):
            counts[channel] += np.bincount(some[:, channel].ravel(), minlength=256)
    values = np.arange(256) / 255
    total = np.maximum(1, counts.sum(1))
    mean = counts @ values / total
    spread = np.sqrt(np.maximum(counts @ values**2 / total - mean**2, 0.0))
    # A channel that never changes says nothing; divided by one it stays so.
    return mean.tolist(), np.where(spread > 0, spread, 1.0).tolist()


@dataclass(frozen=True, eq=False)
class PictureBatch:
    """Pictures and their labels."""

    pictures: NDArray[np.uint8]
    """(batch, channels, height, width)"""
    labels: NDArray[np.int64]
    indices: NDArray[np.int64]
    """Where in the set each comes from."""

    @property
    def num_answers(self) -> int:
        """One for each picture."""
        return len(self.labels)


class PictureExamples:
    """Some pictures of a set as examples, each of `num_tokens` tokens."""

    def __init__(self, pictures: Pictures, rows: Integers, num_tokens: int, distort: Distort | None = None) -> None:
        self.pictures, self.rows, self._distort = pictures, np.asarray(rows, dtype=np.int64), distort
        self._lengths = np.full(len(rows), num_tokens, dtype=np.int32)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> NDArray[np.int32]:
        return self._lengths

    @property
    def sort_keys(self) -> tuple[Integers, ...]:
        return ()

    @property
    def answers(self) -> NDArray[np.int64]:
        return np.ones(len(self), dtype=np.int64)

    @property
    def work(self) -> NDArray[np.int64]:
        return np.ones(len(self), dtype=np.int64)

    def where(self, row: int) -> str:
        """Which of the pictures it is."""
        return f"picture {self.rows[row] + 1:,}"

    def batch(self, rows: Integers, draw: Draw | None) -> PictureBatch:
        """Pictures, distorted as the draw will have it; without one, as they are."""
        numbers = self.rows[rows]
        pixels = self.pictures.pixels[numbers]
        if draw is not None and self._distort is not None:
            pixels = distorted(pixels, self._distort, draw, numbers)
        return PictureBatch(np.ascontiguousarray(pixels), self.pictures.labels[numbers], numbers)
