"""Probabilities and true labels in; accuracy with its interval, F1, confusion and calibration out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError

BINS = 15
NORMAL_95 = 1.959963984540054


@dataclass(frozen=True)
class OfLabel:
    """How one label fares."""

    label: str
    precision: float
    """Of those called so, the share that is so."""
    recall: float
    """Of those that are so, the share that is called so."""
    f1: float
    count: int
    """How many are so."""


@dataclass(frozen=True)
class Bin:
    """Answers given with about the same confidence."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Verdicts:
    """How right a classifier is, and how well it knows."""

    labels: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    """A row for each true label, a column for each answer."""
    accuracy: float
    accuracy_interval: tuple[float, float]
    """Within which the accuracy on all such texts lies, with 95 % confidence (Wilson)."""
    macro_f1: float
    """The mean F1 of the labels that occur, each counting as much as any other."""
    of_labels: tuple[OfLabel, ...]
    calibration_error: float
    """By how much confidence and accuracy differ, on average (ECE, 15 bins)."""
    bins: tuple[Bin, ...]

    @property
    def count(self) -> int:
        """How many answers were given."""
        return sum(map(sum, self.confusion))

    def as_json(self) -> dict[str, Any]:
        """Names and plain values, ready for a JSON file."""
        return {
            "count": self.count,
            "accuracy": self.accuracy,
            "accuracy_interval": list(self.accuracy_interval),
            "macro_f1": self.macro_f1,
            "calibration_error": self.calibration_error,
            "labels": list(self.labels),
            "confusion": [list(row) for row in self.confusion],
            "of_labels": [asdict(entry) for entry in self.of_labels],
            "bins": [asdict(entry) for entry in self.bins],
        }


def judge(probs: NDArray[np.floating[Any]], truth: Sequence[int], labels: Sequence[str]) -> Verdicts:
    """Compare one row of probabilities for each example with the place of its true label."""
    true = np.asarray(truth, dtype=np.int64)
    if len(probs) != len(true):
        raise DataError(f"{len(probs)} answers do not match {len(true)} labels: one each is needed")
    if not len(true):
        raise DataError("there is nothing to score: no labelled examples")
    answers = probs.argmax(1)
    size = len(labels)
    confusion = np.bincount(true * size + answers, minlength=size * size).reshape(size, size)
    right = int(np.trace(confusion))
    of_labels = tuple(_of_label(labels[place], confusion, place) for place in range(size))
    bins = tuple(_bins(probs.max(1), answers == true))
    return Verdicts(
        labels=tuple(labels),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        accuracy=right / len(true),
        accuracy_interval=wilson(right, len(true)),
        macro_f1=float(np.mean([entry.f1 for entry in of_labels if entry.count])),
        of_labels=of_labels,
        calibration_error=sum(entry.count * abs(entry.accuracy - entry.confidence) for entry in bins) / len(true),
        bins=bins,
    )


def wilson(right: int, count: int) -> tuple[float, float]:
    """The 95 % confidence interval of a share; unlike the plain one it holds near 0 and 1 too.

    >>> [round(end, 4) for end in wilson(90, 100)], wilson(0, 10)[0]
    ([0.8256, 0.9448], 0.0)
    """
    share, z = right / count, NORMAL_95**2
    middle = share + z / (2 * count)
    half = NORMAL_95 * math.sqrt(share * (1 - share) / count + z / (4 * count**2))
    return max(0.0, (middle - half) / (1 + z / count)), min(1.0, (middle + half) / (1 + z / count))


def chance_of(ours: Sequence[bool], theirs: Sequence[bool]) -> float:
    """How likely chance alone makes two systems differ as much as they do (McNemar's exact test, two-sided).

    Of the examples that just one of the two gets right, each is as likely to be right about as many.

    >>> chance_of([True] * 8 + [False] * 2, [False] * 8 + [True] * 2)
    0.109375
    """
    won = sum(one and not other for one, other in zip(ours, theirs, strict=True))
    lost = sum(other and not one for one, other in zip(ours, theirs, strict=True))
    count = won + lost
    # In logarithms: of many examples, the parts are too small for a number.
    logs = (math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(min(won, lost) + 1))
    return min(1.0, 2 * sum(math.exp(log - count * math.log(2)) for log in logs))


def _of_label(label: str, confusion: NDArray[np.int64], place: int) -> OfLabel:
    right = int(confusion[place, place])
    called, count = int(confusion[:, place].sum()), int(confusion[place].sum())
    return OfLabel(
        label, right / called if called else 0.0, right / count if count else 0.0,
        2 * right / (called + count) if called + count else 0.0, count,
    )  # fmt: skip


def _bins(confidence: NDArray[np.floating[Any]], is_right: NDArray[np.bool_]) -> list[Bin]:
    places = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    found = []
    for place in np.unique(places):
        here = places == place
        means = float(confidence[here].mean()), float(is_right[here].mean())
        found.append(Bin(place / BINS, (place + 1) / BINS, int(here.sum()), *means))
    return found
