"""What the tests of the server share: clients of servers with stand-ins, and a small trained model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.run.conftest import trained as trained
from tests.shared.runs import finished_run

pytest.importorskip("fastapi", reason="needs fastapi: pip install 'clearhead[serve]'")
from starlette.testclient import TestClient
from tests.serve.doubles import backwards, counting, shouting
from tests.serve.here import Here

from clearhead.serve.app import Application
from clearhead.serve.bounds import Bounds
from clearhead.serve.catalogue import Catalogue, Served
from clearhead.serve.gate import Policy
from clearhead.serve.opening import open_models

Start = Callable[..., TestClient]


@pytest.fixture
def start() -> Iterator[Start]:
    """A client of a server with these models and bounds; `client.server` is what is behind it."""
    with ExitStack() as stack:

        def started(*models: Served, policy: dict[str, Any] | None = None, **bounds: Any) -> TestClient:
            served = models or (backwards(), counting(), shouting())
            application = Application(Catalogue(served), Policy(Bounds(**bounds), **(policy or {})))
            client = stack.enter_context(TestClient(application.gate, raise_server_exceptions=False))
            client.server = application.server  # type: ignore[attr-defined]
            return client

        yield started


@pytest.fixture
def client(start: Start) -> TestClient:
    """A client of a server with a translator, a language model and a classifier, none of them real."""
    return start()


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Where a server with stand-ins listens, for clients that want a real one."""
    with Here(backwards(), counting(), shouting()) as server:
        yield server.address


@pytest.fixture(scope="session")
def numbers(trained: Path) -> Catalogue:
    """A real translator of German number words, that has learnt a little."""
    return open_models([trained], engine="torch", device="cpu")


@pytest.fixture(scope="session")
def bytewise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real translator that reads and writes bytes, so that any character reaches it; it knows next to nothing."""
    out = tmp_path_factory.mktemp("bytewise") / "bytewise"
    return finished_run(
        out,
        {
            "data": {"kind": "numbers", "largest": 200, "train_size": 60, "validation_size": 8, "test_size": 8},
            "tokenizer": {"kind": "byte"},
            "model": {"dim": 8, "ff_dim": 16, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "max_len": 96},
            "train": {"steps": 4, "lr": 0.01, "warmup": 2, "validate_every": 4},
            "generation": {"strategy": "greedy", "max_len_ratio": 1.0, "max_len_extra": 8},
        },
    )
