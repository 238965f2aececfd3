"""Nothing in, the model that is used when none is named out: the user's own default, or the one in the box."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from clearhead.errors import MissingInputError

NAME = "de-zh-en"
"""German and Chinese to English."""


def assets() -> Path:
    """Where the package keeps its models."""
    return Path(str(resources.files("clearhead") / "assets"))


def default_model(folder: Path | None = None) -> Path:
    """The model in $CLEARHEAD_MODEL, or else the built-in one, or one line that says how to do without."""
    if own := os.environ.get("CLEARHEAD_MODEL"):
        return Path(own).expanduser()
    path = (folder or assets()) / NAME
    if not (path / "model.safetensors").is_file():
        raise MissingInputError(
            f"this copy of clearhead has no built-in model ({path} is missing): name one of your own or "
            "set CLEARHEAD_MODEL; clearhead train makes one"
        )
    return path
