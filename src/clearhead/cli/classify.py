"""`clearhead classify`: pictures in, one line out for each: its label."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.cli import show
from clearhead.cli.flags import (
    Device,
    Json,
    Model,
    Reduce,
    ReduceR,
    ReduceThreshold,
    Switch,
    Threads,
    make_fewer,
    use_threads,
)
from clearhead.cli.reading import read_lines
from clearhead.errors import UsageError

if TYPE_CHECKING:
    from clearhead.run.seeing import LoadedVit, Seen


def classify(
    *inputs: str,
    model: Model = None,
    probabilities: Switch = False,
    as_json: Json = False,
    reduce: Reduce = None,
    r: ReduceR = None,
    threshold: ReduceThreshold = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Say what pictures show.

    clearhead classify --model runs/fashion-vit picture.png

    ls *.png | clearhead classify --model runs/fashion-vit --probabilities

    Parameters
    ----------
    inputs
        Picture files; without any, their names are read from standard input, one a line.
    probabilities
        Behind the label, after tabs, every label with its probability, likeliest first.
    """
    if model is None:
        raise UsageError("say which model is to classify: --model runs/NAME")
    use_threads(threads)
    from clearhead.run.seeing import LoadedVit
    from clearhead.run.using import load_as

    loaded = load_as(LoadedVit, model, device)
    make_fewer(loaded, reduce, r, threshold)
    _write_pictures(loaded, iter(inputs) if inputs else read_lines(None), probabilities, as_json)


def _write_pictures(loaded: LoadedVit, names: Iterator[str], probabilities: bool, as_json: bool) -> None:
    names, again = tee(names)
    resized: list[tuple[str, Seen]] = []
    count = 0
    for name, seen in zip(again, loaded.stream(names), strict=True):
        count += 1
        if seen.size != loaded.form[:2]:
            resized.append((name, seen))
        sys.stdout.write(_line(name, seen, probabilities, as_json) + "\n")
        if sys.stdout.isatty():
            sys.stdout.flush()
    if resized:
        name, seen = resized[0]
        height, width = loaded.form[:2]
        first = f"first {Path(name)}, which is {seen.size[0]} x {seen.size[1]}"
        show.note(f"resized {len(resized):,} of {count:,} pictures to {height} x {width}, {first}")


def _line(name: str, seen: Seen, probabilities: bool, as_json: bool) -> str:
    likeliest = sorted(seen.probabilities.items(), key=lambda entry: -entry[1])
    if as_json:
        rounded = {label: round(share, 6) for label, share in likeliest}
        row = {"picture": name, "label": seen.label, "probability": rounded[seen.label], "probabilities": rounded}
        return json.dumps(row, ensure_ascii=False)
    if probabilities:
        return "\t".join([seen.label, *(f"{label} {share:.4f}" for label, share in likeliest)])
    return seen.label
