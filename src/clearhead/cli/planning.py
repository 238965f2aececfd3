"""What a user asked to train in, the configuration that it means out: a recipe, a file, or sizes that fit the data."""

from __future__ import annotations

import functools
import json
import operator
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clearhead.cli import show
from clearhead.errors import MissingInputError, UsageError, did_you_mean

if TYPE_CHECKING:
    from clearhead.config import Tree
    from clearhead.run.settings import RunConfig
    from clearhead.training.events import Reading
    from clearhead.training.sizing import Choice

PICTURES = ("pictures", "picture_labels", "validation_pictures", "validation_picture_labels")
PAIRS = ("source", "target", "tsv", "validation_source", "validation_target", "validation_tsv")


class Kind(NamedTuple):
    """What a kind of model is trained on when there is no config: sizes are then chosen from the data."""

    flags: tuple[str, ...]
    """The settings in `data` that files on the command line may name, each by a flag of its name."""
    example: str
    """Flags to suggest to somebody who has named none."""


LABELLED = tuple(f"{prefix}{kind}" for prefix in ("", "validation_") for kind in ("tsv", "csv", "jsonl", "folder"))
KINDS: dict[str, Kind] = {
    "translator": Kind(PAIRS, "--source FILE --target FILE, --tsv FILE"),
    "classifier": Kind(
        LABELLED, "--tsv FILE (its first line names the columns: text, label), --csv, --jsonl, --folder"
    ),
    "bert": Kind(("text", "validation_text"), "--text FILE, with a document a line"),
    "gpt": Kind(("text", "validation_text"), "--text FILE"),
    "vit": Kind(PICTURES, "--pictures FOLDER, with a folder for each class in it"),
}
"""By its name in MODELS; the flags are those of `train`."""
DEFAULT_KIND = "translator"


class Request(NamedTuple):
    """What a user asked to train."""

    what: str | None
    files: Mapping[str, str]
    """Data files by the name of their setting."""
    out: Path | None
    assignments: list[str]

    @property
    def is_open(self) -> bool:
        """Whether sizes are to be chosen from the data."""
        return self.what is None or self.what in KINDS

    @property
    def kind(self) -> str:
        """The kind of model that was asked for, where sizes are to be chosen."""
        return self.what or DEFAULT_KIND

    @property
    def open_out(self) -> Path:
        """The run directory, where sizes are to be chosen."""
        return self.out or Path("runs") / self.kind

    def changes(self, kind: str) -> list[str]:
        """The files and what was set, as settings of a kind of model; what is set has the last word."""
        given = _given(kind, self.files)
        return [*(_assignment(f"data.{name}", value) for name, value in given.items()), *self.assignments]


class Plan(NamedTuple):
    """A configuration, what is known of the data, and what was chosen for the user."""

    config: RunConfig
    examined: Any | None
    choices: list[Choice]

    def explain(self, what: str | None) -> None:
        if self.choices:
            show.table("chosen for this data", ("setting", "value", "because"), self.choices)
        else:
            show.note(f"{what} → {self.config.out}")


def run_directory(request: Request) -> Path:
    """Where the run is that is to go on."""
    what, out = request.what, request.out
    if what is None or request.is_open:
        if out is None and what is None:
            raise UsageError("--resume needs the run directory: clearhead train runs/NAME --resume")
        return request.open_out
    if is_run(what):
        if out is not None and out.resolve() != Path(what).resolve():
            raise UsageError(f"a run goes on where it is: leave out --out {out}")
        return Path(what)
    from clearhead.run.settings import recipes

    if what not in recipes() and not Path(what).is_file():
        raise MissingInputError(f"there is no run directory {what}")
    return out or Path(_read(request).out)


def is_run(what: str) -> bool:
    """Whether a directory is meant, and not the recipe of its name: sets of data lie in folders called like recipes."""
    from clearhead.run.settings import recipes

    return Path(what).is_dir() and (what not in recipes() or (Path(what) / "config.toml").is_file())


def changes_to(run: Path, request: Request) -> list[str]:
    """What the command line changes in a run that is to go on; nothing, where there is none yet."""
    from clearhead.data.naming import read_settings
    from clearhead.run.settings import kind_of

    stored = run / "config.toml"
    return request.changes(kind_of(read_settings(stored), str(stored))) if stored.is_file() else []


def make_plan(request: Request, tell: Callable[[Reading], None]) -> Plan:
    """The configuration that the arguments mean, and what is already known of the data."""
    what = request.what
    if what is None or request.is_open:
        return _chosen(request, tell)
    if is_run(what):
        raise UsageError(f"{what} is a directory: to go on with a run, add --resume")
    return Plan(_read(request), None, [])


def _read(request: Request) -> RunConfig:
    """A recipe or config file, with what the command line changes."""
    from clearhead.data.naming import read_settings
    from clearhead.run.settings import find_recipe, kind_of, recipes, resolve

    what = str(request.what)
    if what not in recipes() and not Path(what).is_file():
        raise MissingInputError(
            f"there is no recipe or config file '{what}', {did_you_mean(what, [*recipes(), *KINDS])}"
        )
    tree = read_settings(find_recipe(what))
    place = [_assignment("out", str(request.out))] if request.out is not None else []
    changes = [*place, *request.changes(kind_of(tree, what))]
    return resolve(tree, changes, f"{what} and the command line" if changes else what)


def _chosen(request: Request, tell: Callable[[Reading], None]) -> Plan:
    from clearhead.config import build
    from clearhead.run.choosing import choose_config
    from clearhead.run.settings import unset

    if not request.files:
        raise UsageError(f"say what to train on: {KINDS[request.kind].example}, or the name of a recipe")
    tree = _given(request.kind, request.files)
    data = build(type(unset(request.kind).data), tree, "the command line")
    config, choices, found = choose_config(data, str(request.open_out), request.assignments, tell, request.kind)
    return Plan(config, found, choices)


def _given(kind: str, files: Mapping[str, str]) -> Tree:
    """What files on the command line are to a kind of model, as settings of its data."""
    from clearhead.run.tasks import TASKS

    foreign = [name for name in files if name not in KINDS[kind].flags]
    if foreign:
        raise UsageError(f"a {kind} is not trained on --{foreign[0].replace('_', '-')}: {KINDS[kind].example}")
    return TASKS[kind].given(files) if files else {}


def _assignment(key: str, value: str) -> str:
    # A JSON string is a TOML string: a file called 7 or true stays a name.
    return f"{key}={json.dumps(value, ensure_ascii=False)}"


def list_settings(request: Request, tell: Callable[[Reading], None]) -> None:
    """Write every setting as a line of TOML, with its meaning behind it."""
    from clearhead.config import describe, to_value

    config = _settings(request, tell)
    tree = config.model_dump()
    for key, _, meaning in describe(type(config)):
        value = functools.reduce(operator.getitem, key.split("."), tree)
        line = f"# {key} =" if value is None else f"{key} = {to_value(value)}"
        sys.stdout.write(f"{line:<40} # {' '.join(meaning.split())}\n")


def _settings(request: Request, tell: Callable[[Reading], None]) -> RunConfig:
    """What a recipe or file says, what is chosen for data files, or, without any, how things stand before."""
    from clearhead.run.settings import unset

    if not request.is_open:
        return _read(request)
    if request.files:
        return _chosen(request, tell).config
    if request.assignments or request.out is not None:
        raise UsageError(f"to see what that makes of the settings, name the data too: {KINDS[request.kind].example}")
    return unset(request.kind)
