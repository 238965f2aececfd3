"""A model and heads in, what they are worth out, or a model directory without them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.checkpoint import load_model, locate, model_tensors, save_model
from clearhead.data.naming import kept_settings
from clearhead.errors import StorageError, WouldOverwriteError
from clearhead.inspection.ablation import ablated, prune_heads
from clearhead.inspection.names import all_heads
from clearhead.inspection.pictures import Changes, draw_changes
from clearhead.models import Model
from clearhead.run.card import altered_card
from clearhead.run.task import Measure, Trial
from clearhead.storage import refuse_existing, storage_error, sync, write_text

WHOLE = ""
"""The name under which the whole model is noted."""


@dataclass(frozen=True)
class Effect:
    """What a model does without one head."""

    name: str
    values: dict[str, float]
    """What was measured without it, such as loss and bleu."""
    changes: dict[str, float]
    """Without the head minus with it."""

    def row(self) -> dict[str, Any]:
        """The same as one row of a table."""
        return {"name": self.name, **self.values, **{f"{key}_change": change for key, change in self.changes.items()}}


class Notebook:
    """Results, one line of JSON each, on disk as soon as they are there: what is noted is not measured again."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path = path
        self.found: dict[str, dict[str, float]] = {}
        if path.exists():
            self._read(fingerprint)
        else:
            _refuse_to_overwrite(results_beside(path))
        self._rewrite(fingerprint)

    def _read(self, fingerprint: str) -> None:
        lines = self.path.read_text(encoding="utf-8", errors="replace").split("\n")
        first = _parsed(lines[0])
        if first is None or "fingerprint" not in first:
            _refuse_to_overwrite([self.path])
        elif first["fingerprint"] != fingerprint:
            raise WouldOverwriteError(
                f"{self.path} has results of another model or other data: remove it, or change --out"
            )
        # A kill may leave half a line at the end.
        rows = [row for line in lines[1:-1] if (row := _parsed(line)) is not None]
        self.found = {row.pop("name"): row for row in rows}

    def add(self, name: str, values: dict[str, float]) -> None:
        """Note one result."""
        self.found[name] = values
        self._append({"name": name, **values})

    def _rewrite(self, fingerprint: str) -> None:
        rows = [{"name": name, **values} for name, values in self.found.items()]
        text = "".join(json.dumps(row) + "\n" for row in [{"fingerprint": fingerprint}, *rows])
        try:
            write_text(self.path, text)
        except OSError as error:
            raise storage_error(self.path, error) from error

    def _append(self, row: dict[str, Any]) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            sync(self.path)
        except OSError as error:
            raise storage_error(self.path, error) from error


def results_beside(notes: Path) -> list[Path]:
    """The table, the JSON file and the picture that go with notes, or with one another, by their names."""
    return [notes.with_suffix(suffix) for suffix in (".tsv", ".json", ".png")]


def _refuse_to_overwrite(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.exists():
            raise WouldOverwriteError(f"{path} exists already: remove it, or change --out")


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def importance(
    model: Model, trial: Trial, notes: Path, progress: Callable[[int], None] = lambda done: None
) -> Iterator[Effect]:
    """For every head, how what a trial measures changes without it; what `notes` has is not measured again.

    Where there are no notes yet, there must be no results beside them either: what is there is somebody else's.
    `progress` hears how many examples are done, of as many as the trial has for each head and for the whole model.
    """
    names = [WHOLE, *(head.name for head in all_heads(model))]
    notebook = Notebook(notes, _fingerprint(model, trial))
    done = 0
    for name in names:
        if name not in notebook.found:
            with ablated(model, *([name] if name else [])):
                measured = trial.measure(_from(done, progress))
            keys = (measure.key for measure in trial.measures)
            notebook.add(name, dict(zip(keys, measured, strict=True)))
        done += trial.size
        progress(done)
        if name:
            values, whole = notebook.found[name], notebook.found[WHOLE]
            yield Effect(name, values, {key: value - whole[key] for key, value in values.items()})


def _from(done: int, progress: Callable[[int], None]) -> Callable[[int], None]:
    return lambda more: progress(done + more)


def _fingerprint(model: Model, trial: Trial) -> str:
    """What tells results of this model on these examples from those of any other."""
    known = hashlib.sha256(trial.fingerprint().encode())
    for name, tensor in sorted(model_tensors(model).items()):
        known.update(name.encode() + tensor.numpy().tobytes())
    return known.hexdigest()


def save_importance(stem: Path, effects: Sequence[Effect], measures: Sequence[Measure]) -> list[Path]:
    """Write a table, a JSON file and a picture of what heads are worth; the three names come back."""
    table, tree, picture = results_beside(stem)
    rows = [effect.row() for effect in effects]
    header = "\t".join(rows[0])
    lines = ["\t".join(_cell(value) for value in row.values()) for row in rows]
    try:
        write_text(table, "\n".join([header, *lines]) + "\n")
        write_text(tree, json.dumps(rows, indent=2) + "\n")
    except OSError as error:
        raise storage_error(stem, error) from error
    panels = [
        Changes(
            f"change of {measure.name}",
            {effect.name: effect.changes[measure.key] for effect in effects},
            measure.useful,
            min(measure.digits, 3),
        )
        for measure in measures
    ]
    draw_changes(picture, panels)
    return [table, tree, picture]


def _cell(value: Any) -> str:
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def prune(model: Path, names: Sequence[str], out: Path) -> tuple[int, int]:
    """Write a model directory without some heads; the numbers of parameters before and after come back."""
    refuse_existing(out)
    stored = load_model(model)
    smaller = prune_heads(stored.model, names)
    home = locate(model)[0]
    save_model(
        out,
        smaller,
        stored.tokenizers,
        generation=stored.generation,
        card=altered_card(_text(home / "README.md"), smaller, f"Pruned heads: {', '.join(names)}."),
        training_config=kept_settings(home, out),
        replace=False,
    )
    before, after = (sum(weights.numel() for weights in one.parameters()) for one in (stored.model, smaller))
    return before, after


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from None
