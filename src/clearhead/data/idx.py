"""An IDX file in, plain or gzipped, an array of bytes out: the format of MNIST and its successors.

Two zero bytes, one for the type of the numbers, one for the number of axes, the length of each axis in four bytes, and
then the numbers: nothing is read that the header does not promise, and nothing may be missing or left over.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearhead.data.downloads import BLOCK
from clearhead.data.sets import unpacked
from clearhead.errors import DataError, MissingInputError
from clearhead.storage import storage_error

UNSIGNED_BYTE = 0x08
TYPES = {0x08: "bytes", 0x09: "signed bytes", 0x0B: "short", 0x0C: "int", 0x0D: "float", 0x0E: "double"}
MOST_BYTES = 1 << 36
"""More than this is no picture set but a damaged header."""


def read_idx(path: Path, axes: int, what: str) -> NDArray[np.uint8]:
    """The numbers of an IDX file with as many axes; `what` says in messages what it should hold."""
    try:
        with unpacked(path) as file:
            shape = _header(file.read(4 + 4 * axes), path, axes, what)
            wanted = math.prod(shape)
            if wanted > MOST_BYTES:
                raise DataError(f"{path}: its header promises {wanted:,} bytes, which cannot be: it is damaged")
            # One byte more than there should be: so that one too many is noticed.
            data = _read(file, wanted + 1)
    except FileNotFoundError:
        raise MissingInputError(f"there is no file {path}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError(f"{path}: the gzip data are damaged or cut off: fetch the file again") from None
    except OSError as error:
        raise storage_error(path, error) from None
    if len(data) != wanted:
        found = f"{len(data):,} bytes" if len(data) < wanted else "more"
        size = " x ".join(f"{length:,}" for length in shape)
        raise DataError(f"{path}: its header promises {size} = {wanted:,} bytes, and it holds {found}: it is damaged")
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)


def _read(file: gzip.GzipFile | io.BufferedReader, most: int) -> bytearray:
    """As many bytes as there are, up to this many; memory is taken for what is there, not for what was promised."""
    data = bytearray()
    while block := file.read(min(BLOCK, most - len(data))):
        data += block
    return data


def _header(header: bytes, path: Path, axes: int, what: str) -> tuple[int, ...]:
    if len(header) < 4 or header[:2] != b"\0\0" or header[2] not in TYPES:
        raise DataError(f"{path} is not an IDX file: it begins with {header[:4].hex(' ') or 'nothing'}")
    if header[2] != UNSIGNED_BYTE:
        raise DataError(f"{path}: {what} are stored as bytes (type 0x08), and here as {TYPES[header[2]]}")
    if header[3] != axes:
        raise DataError(f"{path}: {what} have {axes} axes, and this IDX file has {header[3]}: is it the right file?")
    if len(header) < 4 + 4 * axes:
        raise DataError(f"{path}: the IDX file ends within its header")
    return struct.unpack(f">{axes}I", header[4:])
