"""What a training run tells the world: the loop yields these; terminal, log file and tests read them."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

Result = TypeVar("Result")


@dataclass(frozen=True)
class Terms:
    """What people call what a kind of model is asked and what it answers."""

    unit: str = "tok"
    """What is answered while training, as it is counted by the second."""
    heads: tuple[str, str, str] = ("source", "reference", "hypothesis")
    """What is given, wanted and made in a validation example."""
    has_perplexity: bool = True
    """Whether it means something between how many answers the model hesitates."""


TOKENS = Terms()
"""The words for models that translate or write."""


@dataclass(frozen=True)
class Noted:
    """Something a person should know before or during the run."""

    message: str


@dataclass(frozen=True)
class Reading:
    """How far work on the data has come; told from time to time if it takes long."""

    what: str
    """`checking` or `tokenising`."""
    pairs: int
    total_pairs: int | None
    """None where nobody knows before the end."""
    pairs_per_second: float
    seconds_left: float | None
    unit: str = "pairs"
    """What is counted."""


@dataclass(frozen=True)
class Started:
    """The first step is about to be taken."""

    step: int
    """Steps already done: 0, or the step a resumed run continues from."""
    total_steps: int
    parameters: int
    device: str
    precision: str
    processes: int = 1
    """How many train together."""


@dataclass(frozen=True)
class Progress:
    """How training goes, averaged over the steps since the last such event."""

    step: int
    total_steps: int
    epoch: int
    loss: float
    perplexity: float | None
    """None where answers are not tokens."""
    lr: float
    grad_norm: float
    tokens_per_second: float
    seconds_left: float
    unit: str = "tok"
    """What these tokens are, where they are not tokens: texts, pictures."""
    accuracy: float | None = None
    """The share of right answers while training, where they are counted."""


@dataclass(frozen=True)
class Sample:
    """One validation example as a person would read it."""

    given: str
    wanted: str
    made: str


@dataclass(frozen=True)
class Validated:
    """The model was measured on data it does not train on."""

    step: int
    loss: float
    perplexity: float | None
    """None where answers are not tokens."""
    is_best: bool
    samples: tuple[Sample, ...] = ()
    accuracy: float | None = None
    """The share of right answers, for models whose answers are right or wrong."""
    heads: tuple[str, str, str] = Terms.heads
    """What the three parts of each sample are called."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint is complete on disk."""

    step: int
    path: Path


@dataclass(frozen=True)
class Finished:
    """The run has ended, and everything worth keeping is on disk."""

    step: int
    reason: str
    """`done`, `early stop` or `interrupted`."""
    seconds: float
    best_step: int | None = None
    best_loss: float | None = None
    model_dir: Path | None = None


Event = Noted | Reading | Started | Progress | Validated | Saved | Finished


class Pace:
    """Counts in, now and then an event out: none for work that is done at once, then one a second."""

    FIRST_AFTER = 2.0
    EVERY = 1.0

    def __init__(self, what: str, total: int | None = None, unit: str = "pairs") -> None:
        self.what, self.total, self.unit = what, total, unit
        self.began = time.monotonic()
        self._due = self.began + self.FIRST_AFTER

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self.began

    @property
    def is_slow(self) -> bool:
        """Whether there was anything to tell."""
        return self._due > self.began + self.FIRST_AFTER

    def at(self, pairs: int, share: float | None = None) -> Reading | None:
        """What to tell, if it is time to; `share` says how much is done where the total is not known."""
        now = time.monotonic()
        if now < self._due:
            return None
        self._due = now + self.EVERY
        if self.total:
            share = pairs / self.total
        left = self.seconds * (1 - share) / share if share else None
        return Reading(self.what, pairs, self.total, pairs / max(self.seconds, 1e-9), left, self.unit)

    def tell(self, steps: Generator[int, None, Result]) -> Generator[Reading, None, Result]:
        """Let steps that yield counts run to their end, and yield what is to be told."""
        while True:
            try:
                reading = self.at(next(steps))
            except StopIteration as end:
                return cast(Result, end.value)
            if reading is not None:
                yield reading
