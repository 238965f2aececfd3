"""`clearhead serve` as a person starts it: every mistake is one line and an exit code, before anything listens."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearhead.cli import run


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
        (["nowhere", "--seconds", "-1"], 78, "'seconds' = -1.0"),
        (["nowhere", "--queue", "0"], 2, "queue"),
        (["nowhere", "--rate", "-5"], 78, "'rate' = -5"),
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
