"""The demo's parts: its configuration and its unseen numbers."""

from __future__ import annotations

from pathlib import Path

from clearhead.data.numbers import spell
from clearhead.run.scoring import pairs_to_score
from clearhead.run.settings import TranslatorRun, find_recipe, read_config

QUICK = ("train.steps=30", "train.validate_every=30", "train.log_every=5", "data.test_size=50")


def numbers_config(run: Path, *, quick: bool) -> TranslatorRun:
    """The numbers recipe, to be run in `run`."""
    config = read_config(find_recipe("numbers"), [f"out={str(run)!r}", *(QUICK if quick else ())])
    assert isinstance(config, TranslatorRun)
    return config


def spelled(number: int) -> str:
    """A number in German words."""
    return spell(number, "de")


def unseen_numbers(run: Path) -> tuple[list[str], list[str]]:
    """Numbers that were never trained on: German words and English words."""
    pairs, _ = pairs_to_score(run, None, None, None, "test", None)
    return [pair.source for pair in pairs], [pair.reference for pair in pairs]
