"""The flags that several verbs share, each with its name, its help and its check; importing them loads no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

_AT_LEAST_ONE = Number(gte=1)

Switch: TypeAlias = Annotated[bool, Parameter(negative=(), show_default=False)]
"""A flag that is off unless it is there."""
Json: TypeAlias = Annotated[
    bool, Parameter(name="--json", negative=(), show_default=False, help="Write one JSON object, for programs.")
]
Count: TypeAlias = Annotated[int | None, Parameter(validator=_AT_LEAST_ONE)]
"""A number from 1, or nothing."""
Model: TypeAlias = Annotated[Path | None, Parameter(name=["--model", "-m"], help="A model or run directory.")]
Device: TypeAlias = Annotated[str, Parameter(help="Where to compute: auto, cpu, cuda, cuda:1, mps.")]
Threads: TypeAlias = Annotated[int | None, Parameter(validator=_AT_LEAST_ONE, help="CPU threads to use.")]
Engine: TypeAlias = Annotated[
    str | None,
    Parameter(help="What computes: torch, ctranslate2 or onnx; the one the model was made for unless given."),
]
Workers: TypeAlias = Annotated[
    int | None,
    Parameter(
        validator=_AT_LEAST_ONE,
        help="Processes, of one thread each, that share the work; as many as there are threads where that pays.",
    ),
]


def use_threads(threads: int | None) -> None:
    """Compute on this many CPU threads, or on as many as torch likes."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
