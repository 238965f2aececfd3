"""A run and its prepared data in, nothing out: data that are not those that the run began with are refused.

Examples are known by how many tokens each has, on each side, in order: that takes no second look at the files, which
may have moved.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from clearhead.config import to_value
from clearhead.data.examples import Examples
from clearhead.errors import DataError
from clearhead.run.task import Prepared
from clearhead.storage import read_json, write_json

NAME = "data.json"

_CHUNK = 1 << 20


def remember(run: Path, prepared: Prepared) -> None:
    """Write down what a run is trained on and judged by."""
    write_json(run / NAME, _traits(prepared))


def recognise(run: Path, prepared: Prepared) -> None:
    """Refuse to go on with other data; a run of an earlier version, which has not written them down, passes."""
    if not (run / NAME).is_file():
        return
    before, now = read_json(run / NAME), _traits(prepared)
    for what, found in now.items():
        if before.get(what) != found:
            raise DataError(
                f"the data to {what} are no longer those that {run} began with ({_said(before.get(what))} then, "
                f"{_said(found)} now): put those back, or start a new run, with init = {to_value(str(run))} if its "
                "weights are wanted"
            )


def _traits(prepared: Prepared) -> dict[str, Any]:
    return {"train on": _known_by(prepared.training), "validate on": _known_by(prepared.validation)}


def _known_by(examples: Examples) -> dict[str, Any]:
    digest = hashlib.sha256()
    for lengths in (examples.lengths, *examples.sort_keys):
        for start in range(0, len(lengths), _CHUNK):
            digest.update(np.asarray(lengths[start : start + _CHUNK], dtype="<i8").tobytes())
    tokens = int(examples.lengths.sum(dtype=np.int64))
    return {"examples": len(examples), "tokens": tokens, "lengths": digest.hexdigest()}


def _said(traits: Any) -> str:
    return f"{traits['examples']:,} examples of {traits['tokens']:,} tokens" if traits else "none"
