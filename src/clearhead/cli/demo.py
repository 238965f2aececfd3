"""`clearhead demo`: nothing in; a translator trained before your eyes, scored on unseen data, and a look inside."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from clearhead.cli import show
from clearhead.errors import WouldOverwriteError

SHOWN = (7, 23, 58, 391, 4_711, 86_420, 917_253)
PICTURED = 23


def demo(*, out: Path = Path("demo"), quick: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Train a small translator live, score it on unseen numbers, and draw what its heads look at.

    Offline, on built-in data, in about two minutes on a laptop.

    Parameters
    ----------
    out
        Where the run and the picture go; an earlier demo there is replaced.
    quick
        A few steps only: shows the way, not the result.
    """
    from clearhead.run.demonstration import look_inside, numbers_config, spelled, unseen_numbers
    from clearhead.run.training import train
    from clearhead.run.using import load

    run = out / "run"
    _clear(run)
    show.note("Clearhead learns to read German numbers aloud in English, from 20,000 examples.\n")
    for _ in show.training(train(numbers_config(run, quick=quick))):
        pass
    translator = load(run)
    sources, references = unseen_numbers(run)
    with show.counting("translating unseen numbers", len(sources)) as done:
        found = []
        for best in translator.stream(sources, translator.generation):
            found.append(best[0].text)
            done(len(found))
    right = sum(hypothesis == reference for hypothesis, reference in zip(found, references, strict=True))
    show.note("")
    words = [spelled(number) for number in SHOWN]
    rows = zip(map("{:,}".format, SHOWN), words, translator.translate(words), strict=True)
    show.table("what it says", ("number", "German", "English, as translated"), rows)
    show.note(
        f"\n{right:,} of {len(found):,} numbers it never saw are exactly right ({100 * right / len(found):.1f} %)."
    )
    picture = out / "attention.png"
    said = look_inside(translator, spelled(PICTURED), picture)
    show.note(f"What its heads look at while {spelled(PICTURED)} becomes {said}: open {picture}")
    show.note(f'\nYour turn:  clearhead translate --model {run} "{spelled(42)}"')
    show.note("            clearhead train translator --source your.de --target your.en --out runs/mine")
    return 0


def _clear(run: Path) -> None:
    """Remove an earlier demo, but nothing else."""
    if not run.exists():
        return
    if not (run / "config.toml").is_file():
        raise WouldOverwriteError(f"{run} was not made by the demo: choose another --out")
    shutil.rmtree(run)
