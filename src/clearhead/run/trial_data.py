"""What a person names to compare a copy on in, pairs of a text and what is right out, by the kind of model.

A new kind of model is one function and one line in DATA.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from clearhead.data.lines import TextFile
from clearhead.errors import DataError, UsageError
from clearhead.run.judging import texts_to_judge
from clearhead.run.scoring import pairs_to_score
from clearhead.run.seeing import pictures_to_score
from clearhead.run.using import kind_of, load

Given: TypeAlias = Mapping[str, Any]
"""What was given, by the names of the flags."""


class TrialData(NamedTuple):
    """What both are tried on."""

    pairs: list[tuple[Any, str]]
    language: str | None = None
    """The language of the references, where it is known."""


def trial_data(model: Path, given: Given, limit: int | None) -> TrialData:
    """The data that a model is to be tried on; `given` must be of the sort that fits its kind."""
    kind = kind_of(model)
    flags, read = DATA[kind]
    for name in given:
        if name not in flags:
            fitting = ", ".join(f"--{flag}" for flag in flags)
            raise UsageError(f"a {kind} is compared on {fitting}: leave out --{name}")
    return read(model, given, limit)


def _translations(model: Path, given: Given, limit: int | None) -> TrialData:
    source, target, tsv, split = (given.get(name) for name in ("source", "target", "tsv", "split"))
    pairs, language = pairs_to_score(model, source, target, tsv, split, limit)
    return TrialData([(pair.source, pair.reference) for pair in pairs], language)


def _labelled(model: Path, given: Given, limit: int | None) -> TrialData:
    files = {name: path for name, path in given.items() if name != "split"}
    found = texts_to_judge(load(model, "cpu"), model, files, given.get("split"), limit)
    return TrialData([(text, found.names[label]) for text, label in zip(found.texts, found.labels, strict=True)])


def _pictures(model: Path, given: Given, limit: int | None) -> TrialData:
    loaded = load(model, "cpu")
    examples = pictures_to_score(loaded, model, given.get("split"), given.get("folder"), limit)
    batch = examples.batch(np.arange(len(examples)), None)
    names = [loaded.labels[label] for label in batch.labels.tolist()]
    return TrialData(list(zip(batch.pictures, names, strict=True)))


def _lines(model: Path, given: Given, limit: int | None) -> TrialData:
    lines = [line for line in TextFile(given["text"]).lines() if isinstance(line, str) and line.strip()][:limit]
    if not lines:
        raise DataError(f"{given['text']} has no text to compare on")
    return TrialData([(line, "") for line in lines])


DATA: dict[str, tuple[tuple[str, ...], Callable[[Path, Given, int | None], TrialData]]] = {
    "translator": (("source", "target", "tsv", "split"), _translations),
    "classifier": (("tsv", "csv", "jsonl", "folder", "split"), _labelled),
    "vit": (("folder", "split"), _pictures),
    "gpt": (("text",), _lines),
    "bert": (("text",), _lines),
}
"""By the kind of model: the flags that name its data, and how these are read."""
