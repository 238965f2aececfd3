"""Runs that several tests look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.shared.shapes import unchecked_shapes


def finished_run(out: Path, settings: dict[str, Any]) -> Path:
    """Train by these settings to the end, for a fixture that outlives one test."""
    from clearhead.run.settings import resolve
    from clearhead.run.training import train

    with pytest.MonkeyPatch.context() as patch, unchecked_shapes():
        patch.setenv("CLEARHEAD_CACHE", str(out.parent / "cache"))
        for _ in train(resolve({"out": str(out), **settings})):
            pass
    return out
