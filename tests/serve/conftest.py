"""What the tests of the server share: clients of servers with stand-ins, and a small trained model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.run.conftest import trained as trained

pytest.importorskip("fastapi", reason="needs fastapi: pip install 'clearhead[serve]'")
from starlette.testclient import TestClient
from tests.serve.doubles import backwards, counting, shouting

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
def numbers(trained: Path) -> Catalogue:
    """A real translator of German number words, that has learnt a little."""
    return open_models([trained], engine="torch", device="cpu")
