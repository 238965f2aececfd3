"""`clearhead train`: a recipe, a config file or two text files in, a run directory out."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from clearhead.cli import show
from clearhead.errors import INTERRUPTED, TERMINATED, UsageError

if TYPE_CHECKING:
    from clearhead.run.preparing import Examined
    from clearhead.run.settings import RunConfig
    from clearhead.train.events import Event

KINDS = ("translator",)


def train(
    what: Annotated[str | None, Parameter(show_default=False)] = None,
    /,
    *,
    source: Path | None = None,
    target: Path | None = None,
    tsv: Path | None = None,
    validation_source: Path | None = None,
    validation_target: Path | None = None,
    validation_tsv: Path | None = None,
    out: Path | None = None,
    set: Annotated[list[str] | None, Parameter(name=["--set", "-s"], negative=())] = None,
    resume: Annotated[bool, Parameter(negative=())] = False,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    device: str = "auto",
    threads: int | None = None,
) -> int:
    """Train a model on your own data.

    clearhead train translator --source a.de --target a.en --out runs/de-en

    clearhead train numbers --set train.steps=500

    clearhead train runs/de-en --resume

    Parameters
    ----------
    what
        A recipe's name, a config file, a run directory to go on with, or `translator` for sizes chosen from your data.
    source
        Text in the source language, one sentence a line; plain or .gz.
    target
        Its translation, line by line.
    tsv
        Instead of two files: one with source and target in its first two tab-separated columns.
    validation_source
        Source text to validate on; without it some pairs are held out.
    validation_target
        Its translation.
    validation_tsv
        Pairs to validate on, as one file.
    out
        The run directory.
    set
        Change one setting, as in --set train.lr=3e-4; may be repeated.
    resume
        Go on from the last checkpoint.
    dry_run
        Check the data, choose sizes, estimate memory and time, and stop there.
    device
        Where to compute: auto, cpu, cuda.
    threads
        CPU threads to use.
    """
    import torch

    from clearhead.run import training

    if threads is not None:
        torch.set_num_threads(threads)
    assignments = list(set or [])
    data = {
        "source": source, "target": target, "tsv": tsv, "validation_source": validation_source,
        "validation_target": validation_target, "validation_tsv": validation_tsv,
    }  # fmt: skip
    given = {name: str(path) for name, path in data.items() if path is not None}
    with stoppable() as stop:
        if resume:
            run = _run_directory(what, out, assignments)
            return _follow(training.resume(run, assignments, device=device, stop=stop), stop)
        config, examined = _config(what, given, out, assignments)
        if dry_run:
            for noted in training.rehearse(config, examined=examined, device=device):
                show.note(noted.message)
            return 0
        return _follow(training.train(config, examined=examined, device=device, stop=stop), stop)


def _run_directory(what: str | None, out: Path | None, assignments: list[str]) -> Path:
    if out is not None:
        return out
    if what is None:
        raise UsageError("--resume needs the run directory: clearhead train runs/NAME --resume")
    if Path(what).is_dir():
        return Path(what)
    from clearhead.run.settings import find_recipe, read_config

    return Path(read_config(find_recipe(what), assignments).out)


def _config(
    what: str | None, given: dict[str, str], out: Path | None, assignments: list[str]
) -> tuple[RunConfig, Examined | None]:
    """The configuration that the arguments mean, and what is already known of the data."""
    from clearhead.run.settings import find_recipe, read_config

    if what is None or what in KINDS:
        return _chosen(given, out, assignments)
    if Path(what).is_dir():
        raise UsageError(f"{what} is a directory: to go on with a run, add --resume")
    paths = [f"data.{name}={path!r}" for name, path in given.items()]
    place = [f"out={str(out)!r}"] if out is not None else []
    config = read_config(find_recipe(what), [*paths, *place, *assignments])
    show.note(f"recipe {what} → {config.out}")
    return config, None


def _chosen(given: dict[str, str], out: Path | None, assignments: list[str]) -> tuple[RunConfig, Examined | None]:
    from clearhead.config import build
    from clearhead.data.sources import DataConfig
    from clearhead.run.choosing import choose_config

    if not given:
        raise UsageError("say what to train on: --source FILE --target FILE, --tsv FILE, or the name of a recipe")
    kind = "tsv" if "tsv" in given else "files"
    data = build(DataConfig, {"kind": kind, **given}, "the command line")
    config, choices, examined = choose_config(data, str(out or "runs/translator"), assignments)
    show.table("chosen for this data", ("setting", "value", "because"), choices)
    return config, examined


def _follow(events: Iterator[Event], stop: Stop) -> int:
    """Show a run to its end and say what to do next."""
    from clearhead.train.events import Finished

    for event in show.training(events):
        if isinstance(event, Finished) and event.model_dir is not None:
            run = event.model_dir.parent
            if event.reason == "interrupted":
                show.note(f"saved; go on with: clearhead train {run} --resume")
                return TERMINATED if stop.signal == signal.SIGTERM else INTERRUPTED
            show.note(f'the model is in {event.model_dir}; try it: clearhead translate --model {run} "…"')
    return 0


class Stop:
    """Whether a signal has asked the run to end; calling it tells."""

    signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Turn the first Ctrl-C or SIGTERM into a wish, granted after the current step; a second one ends the run."""
    stop = Stop()

    def wish(number: int, frame: object) -> None:
        if stop():
            raise KeyboardInterrupt
        stop.signal = number
        show.fail("stopping after this step; once more to stop at once")

    before = {number: signal.signal(number, wish) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
