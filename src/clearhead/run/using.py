"""A model directory in, what its kind of model is used through out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from clearhead.checkpoint import load_model, locate
from clearhead.engines.directory import is_exported
from clearhead.errors import UsageError
from clearhead.run.built_in import default_model
from clearhead.run.tasks import TASKS
from clearhead.storage import read_json

Loaded = TypeVar("Loaded")


def kind_of(path: Path) -> str:
    """The kind of the model in a model or run directory, without loading it."""
    return str(read_json(locate(path)[0] / "config.json").get("kind"))


def load(path: str | Path | None = None, device: str = "auto") -> Any:
    """Load a model directory, the best model of a run directory, or without a path the built-in model."""
    path = default_model() if path is None else Path(path)
    if is_exported(path):
        raise UsageError(f"{path} was exported, and this needs the model as it was trained: name the original")
    stored = load_model(path)
    return TASKS[stored.kind].use(stored, device)


def load_as(wanted: type[Loaded], path: str | Path | None = None, device: str = "auto") -> Loaded:
    """The same for those who can use one kind only: another kind is met with the command that it is for."""
    return used_as(wanted, load(path, device), path)


def used_as(wanted: type[Loaded], loaded: Any, path: str | Path | None = None) -> Loaded:
    """What was loaded, if it is of the kind that is wanted."""
    if not isinstance(loaded, wanted):
        raise refusal(loaded, path)
    return loaded


def refusal(loaded: Any, path: str | Path | None = None) -> UsageError:
    """What to say of a model that is of another kind than the one wanted: the command that it is for."""
    kind = loaded.model.config.kind if hasattr(loaded, "model") else loaded.kind
    return UsageError(f"{path or default_model()} is a {kind}: use clearhead {TASKS[kind].verb}")
