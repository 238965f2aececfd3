"""`clearhead serve` as a person starts it: every mistake is one line and an exit code, before anything listens."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.serve import made_up_models
from tests.serve.doubles import backwards

from clearhead.cli import run
from clearhead.errors import TERMINATED
from clearhead.serve import opening, running
from clearhead.serve.catalogue import Catalogue
from clearhead.serve.gate import Policy


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens already."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield int(other.getsockname()[1])


def fails(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = run(["serve", *words])
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("clearhead: ") and err.count("\n") == 1
    return code, err


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str], taken: int, tmp_path: Path) -> None:
    code, said = fails(capsys, str(tmp_path), "--port", str(taken))
    assert code == 69 and f"port {taken}" in said and "choose another with --port" in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nowhere", "--port", "0"], 66, "there is no model at nowhere"),
        (["nowhere", "--port", "0", "--keys", "no-keys"], 66, "there is no file of keys no-keys"),
        (["nowhere", "--port", "0", "--engine", "tortch"], 78, "did you mean 'torch'"),
        (["nowhere", "--port", "0", "--languages", "de"], 2, "--languages is like de:en"),
        (["nowhere", "--port", "99999"], 69, "cannot listen on 127.0.0.1, port 99999"),
        (["nowhere", "--host", "no.such.host.invalid", "--port", "0"], 69, "cannot listen on no.such.host.invalid"),
        (["nowhere", "--cors", "example.org", "--port", "0"], 2, "--cors is like https://example.org"),
        (["nowhere", "--seconds", "-1"], 78, "'seconds' = -1.0"),
        (["nowhere", "--queue", "0"], 2, "queue"),
        (["nowhere", "--rate", "-5"], 78, "'rate' = -5"),
        (["nowhere", "--r", "3"], 2, "add --reduce merge or --reduce prune"),
    ],
)
def test_every_mistake_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str) -> None:
    found, line = fails(capsys, *words)
    assert found == code and said in line


def test_without_its_packages_it_says_which_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, line = fails(capsys, "nowhere")
    assert code == 69 and "the server needs uvicorn" in line and "pip install 'clearhead[serve]'" in line


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch) -> list[Policy]:
    """The rules of servers that stop as soon as they are ready."""
    found: list[Policy] = []

    def at_once(application: Any, listener: socket.socket, ready: Callable[[], None]) -> None:
        found.append(application.server.policy)
        application.server.close()
        listener.close()
        ready()

    monkeypatch.setattr(running, "run", at_once)
    return found


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "127.1", "localhost", "LocalHost", "::1", "[::1]"])
def test_whatever_is_on_this_machine_alone_answers_to_its_own_names_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, policies: list[Policy], host: str
) -> None:
    monkeypatch.setattr(opening, "open_models", lambda *_, **__: Catalogue([backwards()]))
    assert run(["serve", "--host", host, "--port", "0", "--host-name", "Example.org:8080"]) == 0
    said = capsys.readouterr().err
    shown = "[::1]" if ":" in host else host
    assert f"serving on http://{shown}:" in said and "anybody" not in said
    assert {shown.lower(), "localhost", "127.0.0.1", "[::1]", "example.org"} <= {*(policies[0].hosts or [])}


def test_whoever_listens_to_others_is_told_that_anybody_may_ask(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, policies: list[Policy]
) -> None:
    monkeypatch.setattr(opening, "open_models", lambda *_, **__: Catalogue([backwards()]))
    assert run(["serve", "--host", "0.0.0.0", "--port", "0"]) == 0
    assert "anybody who can reach this machine may ask" in capsys.readouterr().err and policies[0].hosts is None


@pytest.mark.usefixtures("policies")
def test_it_says_what_it_serves_on_which_engine_and_why(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    odd = made_up_models.translator(tmp_path / "odd", norm="batch")
    labels = made_up_models.classifier(tmp_path / "labels")
    assert run(["serve", str(odd), str(labels), "--port", "0", "--device", "cpu"]) == 0
    first, second, third, last = capsys.readouterr().err.splitlines()
    assert first.startswith("odd: translator, ") and "parameters, on torch (not on ctranslate2: " in first
    assert second.startswith("labels: classifier, ") and second.endswith(" parameters, on torch")
    assert third.startswith("serving on http://127.0.0.1:") and last == "stopped"


def test_told_to_stop_while_it_loads_it_stops(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    monkeypatch.setattr(opening, "open_models", slow)
    code, line = fails(capsys, "nowhere", "--port", "0")
    assert code == TERMINATED and "interrupted" in line
