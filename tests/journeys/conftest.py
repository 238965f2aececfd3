"""What journeys share: the program called in-process, small parallel files, and two small trained runs."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.shared.shapes import unchecked_shapes

from clearhead.cli import run
from clearhead.data.numbers import spell

TINY = (
    "tokenizer.vocab_size=300", "batches.max_tokens=512", "model.dim=16", "model.ff_dim=32", "model.num_heads=2",
    "model.encoder_layers=1", "model.decoder_layers=1", "train.warmup=2", "train.log_every=2",
)  # fmt: skip


@dataclass(frozen=True)
class Said:
    """What one command said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of stdout, ended by line feeds and nothing else."""
        assert self.out == "" or self.out.endswith("\n")
        return self.out.split("\n")[:-1]


Clearhead = Callable[..., Said]


@pytest.fixture
def clearhead(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Clearhead:
    """The program as a function: words and bytes on stdin in; exit code, stdout and stderr out."""

    def call(*words: object, stdin: bytes = b"") -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin))))
        code = run([str(word) for word in words])
        out, err = capsysbinary.readouterr()
        return Said(code, out.decode(), err.decode())

    return call


def weighed(clearhead: Clearhead, out: Path, *words: object) -> tuple[dict[str, float], int]:
    """What --importance measured with all heads, and how many heads it tried."""
    said = clearhead("inspect", *words, "--importance", "--out", out)
    assert said.code == 0, said.err
    rows = json.loads(out.with_suffix(".json").read_text())
    assert len(said.lines) == len(rows) + 1 and out.with_suffix(".png").stat().st_size > 500
    keys = [key for key in rows[0] if f"{key}_change" in rows[0]]
    wholes = [{key: row[key] - row[f"{key}_change"] for key in keys} for row in rows]
    assert all(whole == pytest.approx(wholes[0]) for whole in wholes), "all are compared with the same whole"
    assert any(abs(row["loss_change"]) > 1e-6 for row in rows)
    return wholes[0], len(rows)


def assignments(*settings: str) -> list[str]:
    """Each setting behind its flag."""
    return [word for setting in settings for word in ("--set", setting)]


@pytest.fixture(autouse=True)
def as_for_users() -> Iterator[None]:
    with unchecked_shapes():
        yield


def make(cache: Path, *words: object) -> None:
    """Run a command for a fixture that outlives one test."""
    with pytest.MonkeyPatch.context() as patch, unchecked_shapes():
        patch.setenv("CLEARHEAD_CACHE", str(cache))
        assert run([str(word) for word in words]) == 0


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with numbers as `train.de`, `train.en`, `test.de`, `test.en` and `test.tsv`."""
    folder = tmp_path_factory.mktemp("corpus")
    for name, numbers in (("train", range(100, 400)), ("test", range(400, 420))):
        for language in ("de", "en"):
            text = "".join(f"{spell(number, language)}\n" for number in numbers)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8", newline="\n")
    rows = (f"{spell(number, 'de')}\t{spell(number, 'en')}\n" for number in range(400, 420))
    (folder / "test.tsv").write_text("".join(rows), encoding="utf-8", newline="\n")
    return folder


@pytest.fixture(scope="session")
def files_run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on two files, with two checkpoints; not to be changed."""
    out = tmp_path_factory.mktemp("runs") / "de-en"
    files = ("--source", corpus / "train.de", "--target", corpus / "train.en", "--out", out)
    settings = assignments(*TINY, "train.steps=6", "train.validate_every=3", "train.average=2")
    make(tmp_path_factory.getbasetemp() / "cache", "train", "translator", *files, *settings)
    return out


@pytest.fixture(scope="session")
def numbers_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the number-words recipe, Chinese to English; not to be changed."""
    out = tmp_path_factory.mktemp("runs") / "numbers"
    size = ("data.largest=999", "data.train_size=200", "data.validation_size=10", "data.test_size=10")
    settings = assignments(*TINY, *size, "data.source_language=zh", "train.steps=4", "train.validate_every=4")
    make(tmp_path_factory.getbasetemp() / "cache", "train", "numbers", "--out", out, *settings)
    return out


@pytest.fixture(scope="session")
def joint_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on a German and a Chinese part, with a test set held out; not to be changed."""
    folder = tmp_path_factory.mktemp("parts")
    for language in ("de", "zh"):
        rows = (f"{spell(number, 'en')}\t{spell(number, language)}\n" for number in range(100, 300))
        (folder / f"{language}.txt").write_text("".join(rows), encoding="utf-8", newline="\n")
    parts = ", ".join(
        f'{{tsv = "{folder / language}.txt", columns = [2, 1], language = "{language}"}}' for language in ("de", "zh")
    )
    config = (
        f'[data]\nkind = "parts"\ntarget_language = "en"\nparts = [{parts}]\nhold_out_by = "target"\n'
        "hold_out = 0.1\nhold_out_test = 0.1\n[model]\n[train]\nsteps = 3\n"
    )
    (folder / "joint.toml").write_text(config, encoding="utf-8")
    cache = tmp_path_factory.getbasetemp() / "cache"
    make(cache, "train", folder / "joint.toml", "--out", folder / "run", *assignments(*TINY, "generation.max_len=8"))
    return folder / "run"
