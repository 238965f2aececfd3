"""Number formats of stored weights: what comes back from int8 is what went in, to half a step of its row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray
from torch import Tensor

from clearhead.checkpoint import DTYPES, read_tensors, write_tensors
from clearhead.checkpoint.formats import restored, stored_as
from clearhead.errors import DataError

SCALES = "w_scale"
# From the least of all numbers, which no scale can follow, to nearly the largest.
matrices = arrays(
    np.float32, array_shapes(min_dims=2, max_dims=3, max_side=6), elements=st.floats(-(2.0**120), 2.0**120, width=32)
)


def there_and_back(weights: Tensor, dtype: str = "int8") -> Tensor:
    return restored(stored_as({"w": weights}, dtype), dtype, Path("m"))["w"]


@given(matrices)
def test_no_weight_is_further_off_than_half_the_scale_of_its_row(values: NDArray[np.float32]) -> None:
    weights = torch.from_numpy(values)
    stored = stored_as({"w": weights}, "int8")
    assert (stored["w"].dtype, stored[SCALES].dtype) == (torch.int8, torch.float32)
    assert stored[SCALES].shape == (*weights.shape[:-1], 1) and stored["w"].min() >= -127
    back = there_and_back(weights)
    assert back.dtype == torch.float32
    # Dividing and multiplying again round, too: by some millionths of a scale.
    assert ((back.double() - weights.double()).abs() <= (0.5 + 1e-4) * stored[SCALES].double()).all()
    assert (back[weights == 0] == 0).all()


@given(matrices)
def test_what_was_rounded_once_is_rounded_no_further(values: NDArray[np.float32]) -> None:
    once = stored_as({"w": torch.from_numpy(values)}, "int8")
    again = stored_as(restored(once, "int8", Path("m")), "int8")
    assert torch.equal(once["w"], again["w"])
    assert torch.allclose(once[SCALES], again[SCALES], rtol=1e-6, atol=0)


def test_the_largest_of_a_row_is_127_and_a_row_has_a_scale_of_its_own() -> None:
    stored = stored_as({"w": torch.tensor([[127.0, -63.4, 63.6], [0.0, 0.0, 0.0], [0.001, -0.002, 0.0]])}, "int8")
    assert stored["w"].tolist() == [[127, -63, 64], [0, 0, 0], [64, -127, 0]]
    assert stored[SCALES].flatten().tolist() == pytest.approx([1.0, 0.0, 0.002 / 127])
    assert there_and_back(torch.zeros(2, 3)).tolist() == [[0.0] * 3] * 2


def test_what_is_no_matrix_stays_in_half_precision_and_what_counts_stays_whole() -> None:
    tensors = {"norm": torch.rand(5), "threshold": torch.tensor(0.3), "seen": torch.tensor([[7]])}
    stored = stored_as(tensors, "int8")
    assert {name: tensor.dtype for name, tensor in stored.items()} == {
        "norm": torch.float16, "threshold": torch.float16, "seen": torch.int64,
    }  # fmt: skip
    assert restored(stored, "int8", Path("m")).keys() == tensors.keys()


@pytest.mark.parametrize("dtype", [name for name, dtype in DTYPES.items() if dtype.is_floating_point])
def test_a_float_format_is_one_for_all(dtype: str) -> None:
    tensors = {"w": torch.rand(3, 4), "norm": torch.rand(4)}
    stored = stored_as(tensors, dtype)
    assert stored.keys() == tensors.keys() and {tensor.dtype for tensor in stored.values()} == {DTYPES[dtype]}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_matrix_with_what_is_no_number_has_no_scale(value: float) -> None:
    with pytest.raises(DataError) as error:
        stored_as({"w": torch.tensor([[1.0, value]])}, "int8")
    assert str(error.value) == "the weights do not fit into int8: w has values that are not finite; use bfloat16"


def test_int8_takes_half_the_space_of_float16(tmp_path: Path) -> None:
    tensors = {"w": torch.rand(256, 256), "norm": torch.rand(256)}
    for dtype in ("float16", "int8"):
        write_tensors(tmp_path / dtype, stored_as(tensors, dtype))
    large, small = ((tmp_path / dtype).stat().st_size for dtype in ("float16", "int8"))
    assert 0.5 < small / large < 0.52
    assert torch.equal(restored(read_tensors(tmp_path / "int8"), "int8", tmp_path)["w"], there_and_back(tensors["w"]))
