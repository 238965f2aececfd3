"""A run small enough to repeat forty times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearhead.run.settings import RunConfig, resolve

TINY: dict[str, Any] = {
    "data": {"kind": "numbers", "largest": 200, "train_size": 60, "validation_size": 8, "test_size": 8},
    "tokenizer": {"kind": "char"},
    "batches": {"max_tokens": 300},
    "model": {
        "dim": 8, "ff_dim": 16, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.3, "max_len": 64,
    },
    "train": {"steps": 8, "lr": 0.01, "warmup": 4, "validate_every": 4, "log_every": 1},
    "generation": {"strategy": "greedy"},
}  # fmt: skip

Configure = Callable[..., RunConfig]


@pytest.fixture
def tiny(tmp_path: Path) -> Configure:
    """A configuration of a tiny run, changed by `section__key=value`."""

    def configure(out: str = "run", **changes: Any) -> RunConfig:
        tree = {key: dict(value) for key, value in TINY.items()}
        for name, value in changes.items():
            section, key = name.split("__")
            tree[section][key] = value
        return resolve({**tree, "out": str(tmp_path / out)})

    return configure
