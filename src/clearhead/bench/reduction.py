"""A trained model, examples and ways to make its tokens fewer in; how right and fast it is with each out, and drawn.

All ways take turns within one run, so that what else the machine does befalls them alike; the medians count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from clearhead.data.examples import Batch
from clearhead.inspection.pictures import save_figure
from clearhead.inspection.trail import following
from clearhead.models import Model
from clearhead.models.reduction import ReduceConfig, reduce_tokens
from clearhead.run.trying import evenly
from clearhead.training.losses import CrossEntropy
from clearhead.training.objectives import OBJECTIVES
from clearhead.verdicts import wilson

Told = Callable[[str], None]


class Way(NamedTuple):
    """One way to make tokens fewer."""

    name: str
    config: ReduceConfig
    scale: float = 1.0
    """What learnt thresholds are multiplied by."""


class Measured(NamedTuple):
    """What a way is worth."""

    name: str
    right: int
    total: int
    per_second: float
    """Examples, the median of all rounds."""
    faster: float
    """Than with all tokens, in the same rounds."""
    tokens: float
    """How many are left after the last layer, on average; padding does not count."""

    @property
    def accuracy(self) -> float:
        return self.right / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """In which the accuracy on all such examples lies, with 95 % confidence."""
        return wilson(self.right, self.total)


def ways(kind: str, values: Sequence[float], *, learnt: bool = False, r_last: int | None = None) -> list[Way]:
    """With all tokens, and then with each value: of `r` for merging, of the threshold, or of its scale, for pruning.

    `r_last` is the last layer's `r`, if it is another.
    """
    found = [Way("all tokens", ReduceConfig())]
    falling = "" if r_last is None else f" to {r_last}"
    for value in values:
        if kind == "merge":
            config = ReduceConfig(kind="merge", r=round(value), r_last=r_last)
            found.append(Way(f"merge, r = {value:g}{falling}", config))
        elif learnt:
            found.append(Way(f"prune, learnt x {value:g}", ReduceConfig(kind="prune_hard"), value))
        else:
            found.append(Way(f"prune, threshold {value:g}", ReduceConfig(kind="prune_hard", threshold=value)))
    return found


@contextmanager
def reduced(model: Model, way: Way) -> Iterator[None]:
    """The model with fewer tokens for the length of a `with` block."""
    own = {name: x.clone() for name, x in model.state_dict().items() if name.endswith("reduction.threshold")}
    before: ReduceConfig = getattr(model.config, "reduce", ReduceConfig())
    try:
        reduce_tokens(model, way.config)
        _put(model, {name: x * way.scale for name, x in own.items()} if way.config.threshold is None else {})
        yield
    finally:
        reduce_tokens(model, before)
        _put(model, own)


def _put(model: Model, thresholds: dict[str, Any]) -> None:
    there = model.state_dict()
    with torch.no_grad():
        for name, value in thresholds.items():
            if name in there:
                there[name].copy_(value)


@torch.inference_mode()
def measure(
    model: Model,
    batches: Sequence[Batch],
    tried: Sequence[Way],
    *,
    rounds: int = 5,
    timed: int | None = None,
    told: Told = lambda line: None,
) -> list[Measured]:
    """Answer all batches once with each way, and `timed` of them, evenly spaced, again in every round, in turns."""
    model.eval()
    objective, loss = OBJECTIVES[model.config.kind], CrossEntropy()
    few = evenly(batches, timed or len(batches))
    rights, left = [], []
    for way in tried:
        with reduced(model, way):
            left.append(statistics.mean(count for batch in few for count in _left(model, batch, objective, loss)))
            rights.append(sum(objective(model, batch, loss).right or 0 for batch in batches))
        told(f"{way.name}: {rights[-1]:,} right, {left[-1]:.1f} tokens left")
    answers = sum(batch.num_answers for batch in few)
    seconds: list[list[float]] = [[] for _ in tried]
    for number in range(rounds):
        for place, way in enumerate(tried):
            with reduced(model, way):
                began = time.perf_counter()
                for batch in few:
                    objective(model, batch, loss)
                seconds[place].append(time.perf_counter() - began)
        told(f"round {number + 1} of {rounds}")
    count = sum(batch.num_answers for batch in batches)
    return [
        Measured(
            way.name,
            rights[place],
            count,
            answers / statistics.median(seconds[place]),
            statistics.median(whole / own for whole, own in zip(seconds[0], seconds[place], strict=True)),
            left[place],
        )
        for place, way in enumerate(tried)
    ]


def _left(model: Model, batch: Batch, objective: Callable[..., Any], loss: CrossEntropy) -> list[int]:
    """How many tokens of each row are there after the last layer."""
    with following(model) as trail:
        objective(model, batch, loss)
    return [len(row[row >= 0].unique()) for row in trail.holders[-1]]


COLUMNS = ("tokens", "accuracy", "95 % interval", "a second", "faster", "tokens left")


def row(found: Measured) -> tuple[str, ...]:
    """One line of the table."""
    low, high = found.interval
    return (
        found.name,
        f"{100 * found.accuracy:.2f} %",
        f"{100 * low:.2f} to {100 * high:.2f}",
        f"{found.per_second:,.0f}",
        f"{found.faster:.2f}",
        f"{found.tokens:.1f}",
    )


def remark(found: Sequence[Measured], threads: int) -> str:
    """What the table means."""
    return (
        f"{found[0].total:,} examples; {threads} threads; all ways in turns within one run, medians; "
        f'"faster" is than with all tokens in the same rounds.'
    )


SIDES = ((0, -1), (1, 1))
"""The lower and the upper end of an interval, and where they lie."""


def draw(found: Sequence[Measured], path: Path, headline: str) -> None:
    """Draw accuracy against speed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.4), dpi=140, layout="constrained")
    panel = figure.subplots()
    panel.margins(x=0.14)
    found = sorted(found, key=lambda one: one.faster)
    across = [one.faster for one in found]
    up = [100 * one.accuracy for one in found]
    ends = [[100 * max(0.0, sign * (one.interval[side] - one.accuracy)) for one in found] for side, sign in SIDES]
    panel.errorbar(across, up, yerr=ends, marker="o", capsize=3, linewidth=1.2, color="#1f77b4", ecolor="#9ecae1")
    for number, one in enumerate(found):
        label = one.name.partition(", ")[2] or one.name
        # By turns above and below: two that are about as fast stand beside each other.
        shift = (5, -13 if number % 2 else 6)
        panel.annotate(label, (one.faster, 100 * one.accuracy), textcoords="offset points", xytext=shift, fontsize=8)
    panel.set_xlabel("times as fast as with all tokens")
    panel.set_ylabel("accuracy, %")
    panel.set_title(headline, fontsize=10)
    panel.grid(alpha=0.3)
    save_figure(figure, path)
