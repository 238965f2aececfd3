"""What a training run tells the world: the loop yields these; terminal, log file and tests read them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Noted:
    """Something a person should know before or during the run."""

    message: str


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
    perplexity: float
    lr: float
    grad_norm: float
    tokens_per_second: float
    seconds_left: float


@dataclass(frozen=True)
class Sample:
    """One validation example as a person would read it."""

    source: str
    reference: str
    hypothesis: str


@dataclass(frozen=True)
class Validated:
    """The model was measured on data it does not train on."""

    step: int
    loss: float
    perplexity: float
    is_best: bool
    samples: tuple[Sample, ...] = ()


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


Event = Noted | Started | Progress | Validated | Saved | Finished
