"""`clearhead bench`: nothing in; what this machine can do, beside the peers in the same run, to stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from clearhead.cli import show
from clearhead.cli.flags import Count, Switch, Threads, refuse_ending, use_threads
from clearhead.errors import UsageError

app = App(
    name="bench",
    help="Measure this machine: Clearhead beside its peers, its growth with size, and what fewer tokens give.",
)

Values = Annotated[list[float] | None, Parameter(consume_multiple=True, negative=(), validator=Number(gte=0))]
Amounts = Annotated[list[int] | None, Parameter(consume_multiple=True, negative=(), validator=Number(gte=0))]
Times = Annotated[int, Parameter(validator=Number(gte=1))]
Seconds = Annotated[float, Parameter(validator=Number(gt=0))]


@app.command
def train(*, size: str = "tiny", seconds: Seconds = 120.0, threads: Threads = None, quick: Switch = False) -> None:
    """Train Clearhead and its peers in turns on the same batches; tokens a second, ratios and memory.

    clearhead bench train --size tiny --seconds 120

    Parameters
    ----------
    size
        The size of everybody's model: tiny or base.
    seconds
        About how long the turns go on; starting up comes on top.
    quick
        The fewest turns that show something.
    """
    with show.waiting("waking up"):
        from clearhead.bench.training import contest
    figures = contest(size, seconds=0.1 if quick else seconds, threads=threads, steps=1 if quick else 2, told=show.note)
    _write(*figures.table(), figures.remark())


@app.command
def decode(model: Path, *, sentences: Times = 1000, rounds: Times = 5, threads: Threads = None) -> None:
    """Translate Multi30k's test set with a model's weights, by Clearhead and by its peers in turns.

    clearhead bench decode runs/multi30k

    Parameters
    ----------
    model
        A German to English model.
    sentences
        How many of the 1,000 test sentences.
    rounds
        How often everybody translates them; the medians count.
    """
    with show.waiting("waking up"):
        from clearhead.bench.decoding import contest
    figures = contest(model, sentences=sentences, rounds=rounds, threads=threads, told=show.note)
    _write(*figures.table(), figures.remark())


@app.command
def growth(*, out: Path = Path("growth.png"), threads: Threads = None, quick: Switch = False) -> None:
    """Time and memory of a training step as length, width, depth and vocabulary grow; a table and a picture.

    clearhead bench growth --out growth.png

    Parameters
    ----------
    out
        The picture to draw.
    quick
        The smaller values only, and fewer steps.
    """
    with show.waiting("waking up"):
        import torch

        from clearhead.bench import growth as growing
        from clearhead.inspection.pictures import ENDINGS
    refuse_ending("--out", out, *ENDINGS)
    found = growing.measure(quick=quick, threads=threads, told=show.note)
    _write(growing.COLUMNS, map(growing.row, found), growing.remark(threads or torch.get_num_threads()))
    growing.draw(found, out)
    show.note(f"the picture is in {out}")


@app.command
def reduce(
    model: Path,
    *,
    merge: Amounts = None,
    r_last: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    prune: Values = None,
    split: str = "test",
    limit: Count = None,
    timed: Times = 2_000,
    rounds: Times = 5,
    out: Path = Path("reduce.png"),
    threads: Threads = None,
) -> None:
    """How right and how fast a model is when its tokens become fewer; a table and a picture.

    clearhead bench reduce runs/fashion-vit-fine --merge 4 8 16 24

    clearhead bench reduce runs/imdb-pruned --prune 0.5 1 1.5

    Parameters
    ----------
    model
        A model or run directory: one that classifies pictures or texts, or a BERT.
    merge
        For each: how many tokens are merged in each layer.
    r_last
        With --merge: how many in the last layer, if not as many; in between it changes evenly.
    prune
        For each: the threshold, in even shares of attention; if thresholds were learnt, what these are multiplied by.
    split
        The data that the model's training config names: test or validation.
    limit
        Try only so many examples, evenly spaced.
    timed
        About how many of them are answered again in each round, to measure the time.
    rounds
        How often everything takes its turn; the medians count.
    out
        The picture to draw.
    """
    if bool(merge) == bool(prune):
        raise UsageError("say what to try: --merge 4 8 16, or --prune 0.5 1 1.5")
    if r_last is not None and not merge:
        raise UsageError("--r-last goes with --merge")
    use_threads(threads)
    with show.waiting("waking up"):
        import torch

        from clearhead.bench import reduction
        from clearhead.inspection.pictures import ENDINGS
        from clearhead.run.trying import to_try
    refuse_ending("--out", out, *ENDINGS)
    tried, batches, has_learnt = to_try(model, split, limit)
    ways = reduction.ways("merge" if merge else "prune", merge or prune or [], learnt=has_learnt, r_last=r_last)
    count = sum(batch.num_answers for batch in batches)
    few = max(1, round(len(batches) * min(1.0, timed / count)))
    found = reduction.measure(tried, batches, ways, rounds=rounds, timed=few, told=show.note)
    _write(reduction.COLUMNS, map(reduction.row, found), reduction.remark(found, threads or torch.get_num_threads()))
    reduction.draw(found, out, f"{model.resolve().name}: {found[0].total:,} examples")
    show.note(f"the picture is in {out}")


def _write(columns: Sequence[str], rows: Iterable[Sequence[str]], remark: str) -> None:
    """A Markdown table on stdout, before anything is drawn: what took so long must not be lost with a picture."""
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *(f"| {' | '.join(row)} |" for row in rows)]
    sys.stdout.write("\n".join([*lines, "", remark, ""]))
