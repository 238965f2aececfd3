"""`clearhead pack`: a model in, the same model in a half or a quarter of the space out."""

from __future__ import annotations

from pathlib import Path

from clearhead.cli import show


def pack(model: Path, /, *, out: Path, dtype: str = "float16") -> None:
    """Write a model directory to be shipped: weights in fewer bits, everything else as it was.

    clearhead pack runs/de-en --out models/de-en --dtype int8

    Parameters
    ----------
    model
        A model or run directory.
    out
        The model directory to write.
    dtype
        How weights are stored: float16, bfloat16, float32, or int8 with a scale for each row of a matrix.
    """
    from clearhead.run.packing import pack

    size = pack(model, out, dtype)
    show.note(f"{out}: {size / 1e6:.1f} MB, weights in {dtype}")
