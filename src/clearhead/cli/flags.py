"""The flags that several verbs share, each with its name, its help and its check; importing them loads no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

from clearhead.errors import MissingInputError, UsageError

_AT_LEAST_ONE = Number(gte=1)

Switch: TypeAlias = Annotated[bool, Parameter(negative=(), show_default=False)]
"""A flag that is off unless it is there."""
Json: TypeAlias = Annotated[
    bool, Parameter(name="--json", negative=(), show_default=False, help="Write one JSON object, for programs.")
]
Count: TypeAlias = Annotated[int | None, Parameter(validator=_AT_LEAST_ONE)]
"""A number from 1, or nothing."""
Least: TypeAlias = Annotated[float | None, Parameter(validator=Number(gte=0))]
"""A number from 0 at which something fails, or nothing."""
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

Reduce: TypeAlias = Annotated[
    str | None, Parameter(help="Let tokens become fewer: merge those that are alike, or prune those nobody looks at.")
]


@Parameter(name="*")
@dataclass(frozen=True)
class Fewer:
    """How a model's tokens are to become fewer, if anybody asked for it."""

    reduce: Reduce = None
    r: Annotated[
        int | None, Parameter(validator=Number(gte=0), help="Tokens that each layer merges, with --reduce merge.")
    ] = None
    r_last: Annotated[
        int | None,
        Parameter(validator=Number(gte=0), help="As many in the last layer, if not --r; in between it changes evenly."),
    ] = None
    threshold: Annotated[
        float | None,
        Parameter(
            validator=Number(gte=0),
            help="With --reduce prune: tokens go that get less than this part of an even share of attention.",
        ),
    ] = None

    @property
    def flags(self) -> dict[str, str | float | None]:
        """Each flag and what it says."""
        return {"--reduce": self.reduce, "--r": self.r, "--r-last": self.r_last, "--threshold": self.threshold}

    def settings(self) -> dict[str, Any]:
        """Those of `model.reduce` that are meant; empty if nobody asked for it."""
        wished = {"kind": self.reduce, "r": self.r, "r_last": self.r_last, "threshold": self.threshold}
        given = {name: value for name, value in wished.items() if value is not None}
        if given and self.reduce is None:
            raise UsageError(
                "--r, --r-last and --threshold say how tokens become fewer: add --reduce merge or --reduce prune"
            )
        return given

    def switch_on(self, loaded: Any) -> None:
        """Let the tokens of a loaded model become fewer, if it was asked for."""
        given = self.settings()
        if given and not hasattr(loaded, "reduce"):
            raise UsageError("an exported model keeps all its tokens: leave out --reduce, or name the original")
        if given:
            loaded.reduce(**given)


ALL_TOKENS = Fewer()
"""Nobody asked for it."""


def refuse(mode: str, useless: Mapping[str, object]) -> None:
    """Name the first flag that was given and would change nothing."""
    for flag, value in useless.items():
        if value is not None:
            raise UsageError(f"{mode} has no use for {flag}: leave it out")


def refuse_ending(flag: str, path: Path | None, *endings: str) -> None:
    """A file is of the kind that its name says, so that its readers know too; one that has no place costs no work."""
    if path is not None and path.suffix.lower() not in endings:
        raise UsageError(f"{flag} writes a file that ends with {' or '.join(endings)}, not {path}")
    if path is not None and not path.parent.is_dir():
        raise MissingInputError(f"there is no directory {path.parent} to write {path.name} in")


def use_threads(threads: int | None) -> None:
    """Compute on this many CPU threads, or on as many as torch likes."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
