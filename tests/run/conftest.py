"""What the tests of whole runs share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.shared.runs import finished_run


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """No picture of the loss and no samples for people: they take longer than all steps of a tiny run."""
    from clearhead.run.tasks.translator import TranslatorTask
    from clearhead.training import logbook

    monkeypatch.setattr(logbook, "draw_curve", lambda metrics, picture: None)
    monkeypatch.setattr(TranslatorTask, "samples", lambda self, model, prepared, device: ())


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is written to a relative path is written where nobody minds."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that has learnt a little: number words up to 200, letter by letter."""
    out = tmp_path_factory.mktemp("trained") / "run"
    return finished_run(
        out,
        {
            "data": {"kind": "numbers", "largest": 200, "train_size": 120, "validation_size": 8, "test_size": 20},
            "tokenizer": {"kind": "char"},
            "batches": {"max_tokens": 600},
            "model": {
                "dim": 32, "ff_dim": 64, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "max_len": 40,
                "dropout": 0.0,
            },
            "train": {"steps": 120, "lr": 0.01, "warmup": 10, "validate_every": 40},
            "generation": {"strategy": "greedy"},
        },
    )  # fmt: skip
