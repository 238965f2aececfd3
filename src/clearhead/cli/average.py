"""`clearhead average`: several checkpoints of a run in, one model directory with their mean out."""

from __future__ import annotations

from pathlib import Path

from clearhead.cli import show


def average(run: Path, /, *, out: Path, last: int | None = None, best: int | None = None) -> None:
    """Average the weights of a run's last or best checkpoints.

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
