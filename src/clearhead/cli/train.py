"""`clearhead train`: a recipe, a config file or two text files in, a run directory out."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from clearhead.cli import show
from clearhead.cli.flags import Count, Device, Switch, Threads, use_threads
from clearhead.cli.launching import launch
from clearhead.cli.planning import Plan, Request, changes_to, list_settings, make_plan, run_directory
from clearhead.cli.stopping import Stop, stoppable
from clearhead.errors import UsageError

if TYPE_CHECKING:
    from clearhead.training.distributed import Team
    from clearhead.training.events import Event, Finished, Reading


def train(
    what: str | None = None,
    /,
    *,
    source: Path | None = None,
    target: Path | None = None,
    tsv: Path | None = None,
    validation_source: Path | None = None,
    validation_target: Path | None = None,
    validation_tsv: Path | None = None,
    csv: Path | None = None,
    validation_csv: Path | None = None,
    jsonl: Path | None = None,
    validation_jsonl: Path | None = None,
    folder: Path | None = None,
    validation_folder: Path | None = None,
    text: Path | None = None,
    validation_text: Path | None = None,
    pictures: Path | None = None,
    picture_labels: Path | None = None,
    validation_pictures: Path | None = None,
    validation_picture_labels: Path | None = None,
    out: Path | None = None,
    set: Annotated[list[str] | None, Parameter(name=["--set", "-s"], negative=(), metavar="KEY=VALUE")] = None,
    resume: Switch = False,
    dry_run: Switch = False,
    settings: Switch = False,
    device: Device = "auto",
    threads: Threads = None,
    processes: Count = None,
) -> int:
    """Train a model on your own data.

    clearhead train translator --source a.de --target a.en --out runs/de-en

    clearhead train classifier --tsv labelled.tsv --out runs/mine

    clearhead train gpt --text a.txt --out runs/a

    clearhead train vit --pictures photos --out runs/photos

    clearhead train numbers --set train.steps=500

    clearhead train runs/de-en --resume

    torchrun --nproc-per-node 8 -m clearhead train config.toml

    Parameters
    ----------
    what
        A recipe such as numbers, a config file, a run to go on with, or a kind: translator, classifier, bert, gpt, vit.
    source
        Text in the source language, one sentence a line; plain or .gz.
    target
        Its translation, line by line.
    tsv
        Instead of two files: source and target between tabs; for a classifier text and label, named in the first line.
    validation_source
        Source text to validate on; without it some pairs are held out.
    validation_target
        Its translation.
    validation_tsv
        Pairs to validate on, or labelled texts, as one file.
    csv
        Labelled texts for a classifier between commas and double quotes, columns named in the first line.
    validation_csv
        Such texts to validate on.
    jsonl
        Labelled texts for a classifier, one JSON object a line, with the keys text and label.
    validation_jsonl
        Such texts to validate on.
    folder
        Labelled texts for a classifier as files, in a folder for each label.
    validation_folder
        Such texts to validate on.
    text
        Any text, to train a gpt on, or one with a document a line for a bert; plain or .gz.
    validation_text
        A text to validate on; without it the last tenth is kept for that.
    pictures
        For a vit: a folder with a folder of pictures for each class in it, or an IDX file of pictures.
    picture_labels
        Their labels, if that is an IDX file.
    validation_pictures
        Pictures to validate on; without them some are held out.
    validation_picture_labels
        Their labels.
    out
        The run directory; it must be new or empty.
    set
        Change one setting, as in --set train.lr=3e-4; may be repeated.
    resume
        Go on from the last checkpoint.
    dry_run
        Check the data, choose sizes, estimate memory and time, and stop there.
    settings
        List all that --set can change, as it stands, and stop there.
    processes
        Share the work out over this many processes on this machine; torchrun does it for many machines.
    """
    if resume and (dry_run or settings):
        raise UsageError("--resume trains: leave out --dry-run and --settings")
    use_threads(threads)
    data = {
        "source": source, "target": target, "tsv": tsv, "validation_source": validation_source,
        "validation_target": validation_target, "validation_tsv": validation_tsv, "csv": csv,
        "validation_csv": validation_csv, "jsonl": jsonl, "validation_jsonl": validation_jsonl, "folder": folder,
        "validation_folder": validation_folder,
        "text": text, "validation_text": validation_text,
        "pictures": pictures, "picture_labels": picture_labels, "validation_pictures": validation_pictures,
        "validation_picture_labels": validation_picture_labels,
    }  # fmt: skip
    request = Request(what, {name: str(path) for name, path in data.items() if path is not None}, out, set or [])
    if settings:
        with show.waiting("reading the data") as tell:
            list_settings(request, tell)
        return 0
    with stoppable() as stop:
        try:
            if dry_run:
                if processes is not None and processes > 1:
                    show.note(f"time and memory below are those of one process; {processes} would share each step")
                return _rehearse(request, device)
            if processes is not None and processes > 1 and not _is_started(processes):
                return launch(sys.argv[1:], processes)
            return _follow(_resume(request, device, stop) if resume else _start(request, device, stop), stop)
        except KeyboardInterrupt:
            show.fail("interrupted")
            return stop.exit_code


def _is_started(processes: int) -> bool:
    """Whether this is already one of several processes, and of as many as were asked for."""
    if "RANK" not in os.environ:
        return False
    started = os.environ.get("LOCAL_WORLD_SIZE", "1")
    if started != str(processes):
        raise UsageError(f"this is one of {started} processes that were started here: leave out --processes")
    return True


def _start(request: Request, device: str, stop: Stop) -> Iterator[Event]:
    with show.waiting("reading the data") as tell:
        from clearhead.run import together

        team = together.join(device)
        with team.working():
            plan, events = _begin(team, request, stop, tell)
    plan.explain(request.what)
    return events


def _begin(team: Team, request: Request, stop: Stop, tell: Callable[[Reading], None]) -> tuple[Plan, Iterator[Event]]:
    """Plan a run and begin it; where sizes are to be chosen, the first process chooses for all."""
    from clearhead.run import together, training

    plan: Plan | None = None
    with team.agreement():
        if team.leads or not request.is_open:
            plan = make_plan(request, tell)
    config = together.agree_on(team, plan.config if plan else None)
    plan = plan or Plan(config, None, [])
    return plan, training.train(config, examined=plan.examined, stop=stop, team=team, progress=tell)


def _resume(request: Request, device: str, stop: Stop) -> Iterator[Event]:
    with show.waiting("reading the data") as tell:
        from clearhead.run import together, training

        team, found = together.join(device), None
        with team.working():
            with team.agreement():
                if team.leads:
                    run = run_directory(request)
                    is_named = request.what is not None and Path(request.what).is_dir()
                    found = [str(run), is_named or (run / "config.toml").is_file(), changes_to(run, request)]
            place, has_begun, changes = team.tell(found)
            if has_begun:
                return training.resume(Path(place), changes, stop=stop, team=team, progress=tell)
            plan, events = _begin(team, request, stop, tell)
    plan.explain(request.what)
    return events


def _rehearse(request: Request, device: str) -> int:
    with show.waiting("reading the data") as tell:
        from clearhead.run import training

        plan = make_plan(request, tell)
        events = training.rehearse(plan.config, examined=plan.examined, device=device, progress=tell)
    plan.explain(request.what)
    for _ in show.training(events):
        pass
    return 0


def _follow(events: Iterator[Event], stop: Stop) -> int:
    """Show a run to its end and say what to do next."""
    from clearhead.training.events import Finished, Started

    nothing_left, finished = False, None
    for event in show.training(events):
        if isinstance(event, Started):
            stop.is_training, nothing_left = True, event.step >= event.total_steps
        if isinstance(event, Finished):
            finished = event
    if finished is None or finished.model_dir is None:
        return 0
    run = shlex.quote(str(finished.model_dir.parent))
    if finished.reason == "interrupted":
        show.note(f"saved; go on with: {show.program()} train {run} --resume")
        return stop.exit_code
    if nothing_left:
        show.note("there was nothing left to do: to train longer, raise train.steps or train.epochs with --set")
    show.note(f'the model is in {finished.model_dir}; try it: {show.program()} {_verb(finished)} --model {run} "…"')
    return 0


def _verb(finished: Finished) -> str:
    """The command that uses what was trained."""
    from clearhead.run.tasks import TASKS
    from clearhead.storage import read_json

    assert finished.model_dir is not None
    return TASKS[read_json(finished.model_dir / "config.json")["kind"]].verb
