"""Lengths, widths, depths and vocabularies in, time and memory of one of our training steps at each out, and a picture.

Each point is measured in a process of its own, so that its peak of memory is its own, one after the other: times mean
something on a quiet machine only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from clearhead.bench.seat import Facts, Seat, Turn
from clearhead.bench.sizes import Size
from clearhead.bench.training import our_loop, our_model, take_step, whole_step
from clearhead.data.batches import BatchConfig, Batches
from clearhead.data.corpus import Sentences, TokenisedPairs
from clearhead.inspection.pictures import save_figure
from clearhead.text.specials import SPECIALS

MIDDLE = Size("", dim=128, ff_dim=256, num_heads=4, num_layers=2, dropout=0.1, source_vocab_size=4_000,
              target_vocab_size=4_000, joint=True)  # fmt: skip
TOKENS, LENGTH = 2_048, 32
STEPS, QUICK_STEPS = 6, 2

Told = Callable[[str], None]


class Point(NamedTuple):
    """One measurement to make: which line of the picture, and where on it."""

    axis: str
    kernel: str
    value: int


class Measured(NamedTuple):
    """A point and what was found there."""

    point: Point
    seconds: float
    memory: int
    """Bytes above what the process held before there was a model."""


@dataclass(frozen=True)
class Axis:
    """What grows, and by which values; a quick run takes the smaller ones."""

    title: str
    values: tuple[int, ...]
    kernels: tuple[str, ...] = ("auto",)

    def points(self, name: str, *, quick: bool) -> list[Point]:
        """The measurements of this axis."""
        values = self.values[:3] if quick else self.values
        return [Point(name, kernel, value) for value in values for kernel in self.kernels]


AXES = {
    "length": Axis("tokens in a sentence", (32, 64, 128, 256, 512, 1024, 2048), ("auto", "fused", "exact")),
    "width": Axis("width of the model", (64, 128, 256, 512, 1024)),
    "depth": Axis("layers on each side", (1, 2, 4, 6, 8, 12)),
    "vocabulary": Axis("entries of the vocabulary", (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000)),
}


def measure(*, quick: bool = False, threads: int | None = None, told: Told = lambda line: None) -> list[Measured]:
    """Measure every point of every axis."""
    found = []
    for name, axis in AXES.items():
        for point in axis.points(name, quick=quick):
            found.append(measure_point(point, threads or torch.get_num_threads(), QUICK_STEPS if quick else STEPS))
            told("  ".join((name, *row(found[-1])[1:])))
    return found


def measure_point(point: Point, threads: int, steps: int) -> Measured:
    """Train a few steps in a fresh process; the fastest counts."""
    settings = {"name": f"{point.axis} {point.value}", "point": point._asdict(), "threads": threads}
    with Seat("growth", settings) as seat:
        before = seat.facts["peak"]
        seat.ask({})
        turns = [seat.ask({}) for _ in range(steps)]
    return Measured(point, min(turn["seconds"] for turn in turns), max(turn["peak"] for turn in turns) - before)


def sit(settings: Facts) -> Turn:
    """One point: a model is built when first asked, and trained one step each time."""
    torch.manual_seed(1)
    torch.set_num_threads(settings["threads"])
    point = Point(**settings["point"])
    steps: list[Callable[[], object]] = []

    def turn(asked: Facts) -> Facts:
        if not steps:
            steps.append(_step(point))
        began = time.perf_counter()
        steps[0]()
        return {"seconds": time.perf_counter() - began}

    return turn


def _step(point: Point) -> Callable[[], object]:
    size, length = sized(point)
    count = max(1, TOKENS // length)
    random = np.random.default_rng(1)
    lengths = np.full(count, length - 1, dtype=np.int32)
    sides = [
        Sentences(
            random.integers(len(SPECIALS), size.source_vocab_size, int(lengths.sum())),
            np.arange(count, dtype=np.int64) * (length - 1),
            lengths,
        )
        for _ in range(2)
    ]
    pairs = TokenisedPairs(sides[0], sides[1], np.arange(1, count + 1), 0)
    loop = our_loop(our_model(size, kernel=point.kernel, max_len=length + 1), Batches(pairs, BatchConfig(), 1))
    batch = pairs.batch(np.arange(count))
    return lambda: take_step(loop, whole_step(batch))


def sized(point: Point) -> tuple[Size, int]:
    """The size of model and the length of sentence at a point: the middle, but for what grows there."""
    value = point.value
    changes: dict[str, dict[str, int]] = {
        "length": {},
        "width": {"dim": value, "ff_dim": 2 * value},
        "depth": {"num_layers": value},
        "vocabulary": {"source_vocab_size": value, "target_vocab_size": value},
    }
    return Size(**{**asdict(MIDDLE), **changes[point.axis]}), value if point.axis == "length" else LENGTH


COLUMNS = ("what grows", "to", "kernel", "ms a step", "tokens/s", "MiB")


def row(measured: Measured) -> tuple[str, ...]:
    """A measurement for a person."""
    point = measured.point
    _, length = sized(point)
    tokens = max(1, TOKENS // length) * length
    return (
        AXES[point.axis].title,
        f"{point.value:,}",
        point.kernel,
        f"{1000 * measured.seconds:,.0f}",
        f"{tokens / measured.seconds:,.0f}",
        f"{measured.memory / 2**20:,.0f}",
    )


def remark(threads: int) -> str:
    """What the table cannot say."""
    return (
        f"Batches of {TOKENS:,} target tokens; where it does not grow, {LENGTH} tokens a sentence, {MIDDLE.dim} "
        f"wide, inner width twice that, {MIDDLE.num_layers}+{MIDDLE.num_layers} layers, {MIDDLE.source_vocab_size:,} "
        f"entries; threads: {threads}; fp32; the fastest of some steps; memory above an empty process's."
    )


def draw(found: list[Measured], path: Path) -> None:
    """Time above, memory below, one column for each thing that grows."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullLocator

    figure = Figure(figsize=(3.4 * len(AXES), 6.4), dpi=120, layout="constrained")
    grid = figure.subplots(2, len(AXES), sharex="col", sharey="row")
    for column, (name, axis) in enumerate(AXES.items()):
        for kernel in axis.kernels:
            line = [one for one in found if one.point.axis == name and one.point.kernel == kernel]
            values = [one.point.value for one in line]
            look = {"marker": "o", "markersize": 4, "label": kernel, "zorder": 3 if kernel == "auto" else 2}
            grid[0][column].plot(values, [1000 * one.seconds for one in line], **look)
            grid[1][column].plot(values, [one.memory / 2**20 for one in line], **look)
        shown = sorted({one.point.value for one in found if one.point.axis == name})
        for place in (grid[0][column], grid[1][column]):
            place.set_xscale("log", base=2)
            place.set_yscale("log", base=2)
            place.xaxis.set_minor_locator(NullLocator())
            place.set_xticks(shown, [f"{value // 1000}k" if value >= 10_000 else f"{value:,}" for value in shown])
            place.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            place.grid(alpha=0.3)
        grid[1][column].set_xlabel(axis.title)
        if len(axis.kernels) > 1:
            grid[0][column].legend(frameon=False, title="attention kernel")
    grid[0][0].set_ylabel("milliseconds a step")
    grid[1][0].set_ylabel("MiB above an empty process")
    figure.suptitle(f"One training step of {TOKENS:,} tokens, as things grow")
    save_figure(figure, path)
