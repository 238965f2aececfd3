"""Clearhead: train a Transformer on your own data, look inside it, ship it with proof.

clearhead.load().translate("Ich habe einen Apfel gegessen.")
translator = clearhead.load("runs/de-en")
translator.translate(["dreiundzwanzig"])
for event in clearhead.train("numbers", out="runs/numbers"):
    ...
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead import pages, tiles
from clearhead.version import VERSION as __version__

if TYPE_CHECKING:
    from clearhead.run.settings import RunConfig
    from clearhead.training.events import Event

__all__ = ["__version__", "load", "train"]

# Here, for oneDNN and torch ask only once, and whoever computes has imported this first.
tiles.leave_hidden_ones()
pages.ask_for_large_ones()


def load(path: str | Path | None = None, device: str = "auto") -> Any:
    """Load a model directory, the best model of a run directory, or without a path the built-in model.

    What comes back is what a model of its kind is used through: a `LoadedTranslator` for a translator, or an
    `ExportedTranslator`, which needs no torch, for one that was exported.
    """
    from clearhead.run.engines import load

    return load(path, device)


def train(
    config: RunConfig | str | Path | dict[str, Any], *, out: str | Path | None = None, device: str = "auto"
) -> Iterator[Event]:
    """Train by a configuration, a config file, a recipe's name or a tree of settings; iterate to make it happen."""
    from clearhead.run.settings import RunConfig, find_recipe, read_config, resolve
    from clearhead.run.training import train

    if isinstance(config, dict):
        config = resolve(config, where="the configuration")
    elif not isinstance(config, RunConfig):
        config = read_config(find_recipe(str(config)))
    if out is not None:
        config = config.model_copy(update={"out": str(out)})
    return train(config, device=device)
