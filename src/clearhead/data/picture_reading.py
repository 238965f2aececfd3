"""A picture file in, its pixels in the wanted form out, or one clear line that names the file."""

from __future__ import annotations

import hashlib
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError, MissingInputError, UnavailableError

if TYPE_CHECKING:
    from PIL.Image import Image

GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F")
"""Pillow's modes without colour."""


class Form(NamedTuple):
    """What every picture of a set is like."""

    height: int
    width: int
    channels: int

    def __str__(self) -> str:
        return f"{self.height} x {self.width}, {'grey' if self.channels == 1 else 'coloured'}"


def read_picture(path: Path, form: Form) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """One picture file in a form, as (channels, height, width), and the height and width it had."""
    with reading(path) as opened:
        from PIL import ImageOps

        image = ImageOps.exif_transpose(opened)
        size = image.height, image.width
        image = _plain(image, form.channels)
        if size != form[:2]:
            image = image.resize((form.width, form.height), SMOOTH)
        pixels = np.asarray(image, dtype=np.uint8)
    return (pixels[None] if form.channels == 1 else np.moveaxis(pixels, 2, 0)), size


def digest_of(form: Form, pixels: NDArray[np.uint8]) -> int:
    """A hash of a picture as it is to be seen, the same for the same pixels in another file format."""
    shown = hashlib.blake2b(str(form).encode(), digest_size=8)
    shown.update(np.ascontiguousarray(pixels).tobytes())
    return int.from_bytes(shown.digest(), "little")


def _plain(image: Image, channels: int) -> Image:
    """Grey or coloured in eight bits; what can be seen through is laid on white."""
    if image.mode.startswith("I;16") or image.mode == "I":
        # Sixteen bits in thirty-two: Pillow alone would cut off all that is brighter than 255.
        wide = np.asarray(image, dtype=np.int64)
        image = pillow().fromarray((wide.clip(0, 65535) // 257).astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        seen = image.convert("RGBA")
        image = pillow().new("RGBA", seen.size, "white")
        image.alpha_composite(seen)
    return image.convert("L" if channels == 1 else "RGB")


def upright(image: Image) -> tuple[int, int]:
    """Width and height of a picture as it is to be seen: a camera may have stored it lying on its side."""
    return image.size[::-1] if image.getexif().get(0x0112, 1) in (5, 6, 7, 8) else image.size


@contextmanager
def reading(path: Path) -> Iterator[Image]:
    """An open picture; whatever Pillow says of what it finds in there becomes one line with the file's name."""
    library = pillow()
    try:
        with warnings.catch_warnings():
            # A picture of a billion pixels is a mistake or an attack; Pillow only warns of it at first.
            warnings.simplefilter("error", library.DecompressionBombWarning)
            with library.open(path) as image:
                yield image
    except FileNotFoundError:
        raise MissingInputError(f"there is no picture {path}") from None
    except (library.DecompressionBombWarning, library.DecompressionBombError) as error:
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


SMOOTH = 2
"""Pillow's number for bilinear resizing, which averages over all pixels when it makes smaller."""


def pillow() -> Any:
    """Pillow, or how to get it."""
    try:
        from PIL import Image
    except ImportError:
        raise UnavailableError("reading pictures needs Pillow: pip install 'clearhead[pictures]'") from None
    return Image


def _unidentified() -> type[Exception]:
    from PIL import UnidentifiedImageError

    return UnidentifiedImageError
