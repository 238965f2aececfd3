"""IDX files: what is written is read, plain and gzipped, and what is wrong with a file is said in one line."""

from __future__ import annotations

import contextlib
import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.made_up_pictures import write_idx

from clearhead.data.idx import read_idx
from clearhead.errors import ClearheadError, DataError, MissingInputError


@given(shape=st.lists(st.integers(0, 4), min_size=1, max_size=3), seed=st.integers(0, 9), packed=st.booleans())
def test_what_is_written_is_read(
    shape: list[int], seed: int, packed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    numbers = np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)
    path = write_idx(tmp_path_factory.mktemp("idx") / ("file.gz" if packed else "file"), numbers)
    found = read_idx(path, len(shape), "numbers")
    assert found.shape == tuple(shape)
    assert np.array_equal(found, numbers)


WHOLE = struct.pack(">BBBBIII", 0, 0, 8, 3, 2, 2, 2) + bytes(8)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "{path} is not an IDX file: it begins with nothing"),
        (b"\x89PNG\r\n", "{path} is not an IDX file: it begins with 89 50 4e 47"),
        (b"\0\0\x07\x03" + bytes(20), "{path} is not an IDX file: it begins with 00 00 07 03"),
        (
            struct.pack(">BBBBI", 0, 0, 0x0D, 3, 1) + bytes(20),
            "{path}: pictures are stored as bytes (type 0x08), and here as float",
        ),
        (
            struct.pack(">BBBBI", 0, 0, 8, 1, 2) + bytes(2),
            "{path}: pictures have 3 axes, and this IDX file has 1: is it the right file?",
        ),
        (WHOLE[:9], "{path}: the IDX file ends within its header"),
        (WHOLE[:-1], "{path}: its header promises 2 x 2 x 2 = 8 bytes, and it holds 7 bytes: it is damaged"),
        (WHOLE + b"\0", "{path}: its header promises 2 x 2 x 2 = 8 bytes, and it holds more: it is damaged"),
        (
            struct.pack(">BBBBIII", 0, 0, 8, 3, 2**32 - 1, 2**16, 2**16),
            "{path}: its header promises 18,446,744,069,414,584,320 bytes, which cannot be: it is damaged",
        ),
        (
            struct.pack(">BBBBIII", 0, 0, 8, 3, 1_000_000, 256, 256) + bytes(8),
            "{path}: its header promises 1,000,000 x 256 x 256 = 65,536,000,000 bytes, and it holds 8 bytes: "
            "it is damaged",
        ),
        (gzip.compress(WHOLE, mtime=0)[:-6], "{path}: the gzip data are damaged or cut off: fetch the file again"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "images"
    path.write_bytes(data)
    with pytest.raises(DataError) as error:
        read_idx(path, 3, "pictures")
    assert str(error.value) == message.format(path=path)


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError) as error:
        read_idx(tmp_path / "none", 3, "pictures")
    assert str(error.value) == f"there is no file {tmp_path / 'none'}"


@given(data=st.binary(max_size=60))
def test_no_bytes_whatever_end_in_anything_but_an_answer(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("rubbish") / "file"
    path.write_bytes(data)
    with contextlib.suppress(ClearheadError):
        assert read_idx(path, 1, "labels").ndim == 1


@pytest.mark.real_data("fashion-mnist")
def test_a_real_set_is_what_its_makers_say(real_data: Path) -> None:
    images = read_idx(real_data / "t10k-images-idx3-ubyte.gz", 3, "pictures")
    labels = read_idx(real_data / "t10k-labels-idx1-ubyte.gz", 1, "labels")
    assert images.shape == (10_000, 28, 28)
    assert np.bincount(labels).tolist() == [1_000] * 10
