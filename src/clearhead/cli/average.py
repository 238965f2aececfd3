"""`clearhead average`: several checkpoints of a run in, one model directory with their mean out."""

from __future__ import annotations

from pathlib import Path

from clearhead.cli import show
from clearhead.cli.flags import Count


def average(run: Path, /, *, out: Path, last: Count = None, best: Count = None) -> None:
    """Average the weights of a run's last or best checkpoints.

    clearhead average runs/de-en --last 3 --out models/de-en

    Parameters
    ----------
    run
        A run directory.
    out
        The model directory to write.
    last
        How many of the newest checkpoints.
    best
        How many of those with the lowest validation loss.
    """
    from clearhead.run.averaging import average_run

    names = average_run(run, out, last=last, best=best)
    show.note(f"the mean of {', '.join(names)} is in {out}")
