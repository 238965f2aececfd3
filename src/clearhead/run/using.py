"""A model directory in, what its kind of model is used through out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from clearhead.checkpoint import load_model
from clearhead.errors import UsageError
from clearhead.run.built_in import default_model
from clearhead.run.tasks import TASKS

Loaded = TypeVar("Loaded")


def load(path: str | Path | None = None, device: str = "auto") -> Any:
    """Load a model directory, the best model of a run directory, or without a path the built-in model."""
    stored = load_model(default_model() if path is None else Path(path))
    return TASKS[stored.kind].use(stored, device)


def load_as(wanted: type[Loaded], path: str | Path | None = None, device: str = "auto") -> Loaded:
    """The same for those who can use one kind only: another kind is met with the command that it is for."""
    loaded = load(path, device)
    if not isinstance(loaded, wanted):
        kind = loaded.model.config.kind
        raise UsageError(f"{path or default_model()} is a {kind}: use clearhead {TASKS[kind].verb}")
    return loaded
