"""Counts and lengths come in; a report goes out, as plain lines for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data.reasons import REASONS, Reason


class Place(NamedTuple):
    """Where a pair was found."""

    line: int
    file: str | None = None
    """None where there is only one file, or two that run side by side."""

    def __str__(self) -> str:
        return f"{self.file} line {self.line:,}" if self.file else f"line {self.line:,}"


BUCKET_ENDS = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


@dataclass(frozen=True)
class Dropped:
    """How many pairs were left out for one reason."""

    count: int
    first_line: int
    first_file: str | None = None
    """Which file the line is in, where there are several."""

    @property
    def place(self) -> str:
        return str(Place(self.first_line, self.first_file))


@dataclass(frozen=True)
class PartCount:
    """How many pairs of one of several files are kept."""

    file: str
    total: int
    kept: int

    @property
    def sentence(self) -> str:
        return f"of these {self.file}: {self.total:,} pairs, {self.kept:,} kept"


@dataclass(frozen=True)
class Bucket:
    """How many texts have between `low` and `high` characters; the last bucket has no upper end."""

    low: int
    high: int | None
    count: int

    @property
    def label(self) -> str:
        return f"{self.low:,}–{self.high:,}" if self.high else f"over {self.low - 1:,}"


@dataclass(frozen=True)
class Lengths:
    """How long the texts of one side are, in characters."""

    shortest: int
    median: float
    mean: float
    p95: int
    longest: int
    histogram: tuple[Bucket, ...]

    @property
    def sentence(self) -> str:
        return (
            f"shortest {self.shortest:,}, median {self.median:g}, mean {self.mean:g}, 95 % up to {self.p95:g},"
            f" longest {self.longest:,}"
        )


@dataclass(frozen=True)
class Leakage:
    """How many of the usable validation pairs also occur in the kept training data."""

    validation_name: str
    validation_pairs: int
    same_source: int
    same_target: int
    same_pair: int

    @property
    def sentence(self) -> str:
        return (
            f"validation: {self.same_pair:,} of {self.validation_pairs:,} pairs in {self.validation_name} also occur in"
            f" training (source text seen: {self.same_source:,}; target text seen: {self.same_target:,})"
        )


@dataclass(frozen=True)
class Report:
    """What the doctor found in one source."""

    name: str
    total: int
    kept: int
    dropped: dict[Reason, Dropped]
    source_lengths: Lengths
    target_lengths: Lengths
    leakage: Leakage | None = None
    notes: tuple[str, ...] = ()
    parts: tuple[PartCount, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The report as plain dictionaries, lists and numbers."""
        tree = asdict(self)
        tree["dropped"] = {reason.label: asdict(entry) for reason, entry in self.dropped.items()}
        for entry in tree["dropped"].values():
            if entry["first_file"] is None:
                del entry["first_file"]
        tree["notes"] = list(self.notes)
        tree["parts"] = list(tree["parts"])
        for side in ("source_lengths", "target_lengths"):
            tree[side]["histogram"] = list(tree[side]["histogram"])
        return tree

    def lines(self) -> list[str]:
        """The report as a few sentences."""
        lines = [f"{self.name}: {self.total:,} pairs, {self.kept:,} kept ({self.kept_percent} %)"]
        lines += [part.sentence for part in self.parts]
        for reason, entry in self.dropped.items():
            lines.append(f"dropped {entry.count:,}: {reason.label}, first at {entry.place}")
        lines.append(f"source characters: {self.source_lengths.sentence}")
        lines.append(f"target characters: {self.target_lengths.sentence}")
        if self.leakage:
            lines.append(self.leakage.sentence)
        return lines + list(self.notes)

    @property
    def kept_percent(self) -> float:
        """Rounded down, so that 100 means all."""
        return int(1000 * self.kept / self.total) / 10


def measure(lengths: NDArray[np.int32]) -> Lengths:
    """Describe the lengths of at least one text."""
    ends = np.array([*BUCKET_ENDS, np.iinfo(np.int32).max])
    counts = np.bincount(np.searchsorted(ends, lengths), minlength=len(ends))
    last = int(np.flatnonzero(counts)[-1])
    lows = [1, *(end + 1 for end in BUCKET_ENDS)]
    highs = [*BUCKET_ENDS, None]
    return Lengths(
        shortest=int(lengths.min()),
        median=float(np.median(lengths)),
        mean=round(float(lengths.mean()), 2),
        p95=int(np.percentile(lengths, 95, method="higher")),
        longest=int(lengths.max()),
        histogram=tuple(Bucket(lows[i], highs[i], int(counts[i])) for i in range(last + 1)),
    )


def count_dropped(reasons: NDArray[np.uint8], place: Callable[[int], Place]) -> dict[Reason, Dropped]:
    """For each reason that occurs: how often, and where first; `place` knows files and lines."""
    found = {reason: np.flatnonzero(reasons == reason) for reason in REASONS}
    firsts = {reason: place(int(where[0]) + 1) for reason, where in found.items() if len(where)}
    return {reason: Dropped(len(found[reason]), first.line, first.file) for reason, first in firsts.items()}
