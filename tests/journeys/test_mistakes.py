"""What a user does wrong: one line on stderr, nothing on stdout, and the exit code that scripts rely on."""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Clearhead = Callable[..., Any]

WRONG: dict[str, tuple[str, int, str]] = {
    "unknown verb": ("trian", 2, r'unknown command "trian"\. Did you mean "train"\?'),
    "unknown verb of data": ("data chek", 2, r'Did you mean "check"\?.*clearhead data --help'),
    "unknown flag": (
        "train --soruce a",
        2,
        r"unknown option: --soruce\. Did you mean --source\?.*clearhead train --help",
    ),
    "flag without value": ("translate --model", 2, "--model needs a value"),
    "no argument": ("info", 2, "info needs DIRECTORY"),
    "one argument too many": ("info x y", 2, "info has no use for 'y'"),
    "not a number": ("translate -m {run} --beam x y", 2, 'invalid value for --beam: unable to convert "x" into int'),
    "no threads": ("translate -m {run} --threads 0 x", 2, 'invalid value "0" for --threads. Must be >= 1'),
    "no beam": ("translate -m {run} --beam 0 x", 2, 'invalid value "0" for --beam. Must be >= 1'),
    "no pairs": ("score -m {run} --tsv {corpus}/test.tsv --limit 0", 2, 'invalid value "0" for --limit'),
    "unknown recipe": ("train nubmers", 66, "no recipe or config file 'nubmers', did you mean 'numbers'"),
    "nearly translator": ("train translater", 66, "no recipe or config file 'translater', did you mean 'translator'"),
    "unknown key": (
        "train numbers --set train.stpes=3",
        78,
        "numbers and .*unknown key 'train.stpes', did you mean 'train.steps'",
    ),
    "unknown section": ("train numbers --set trian.steps=3", 78, "unknown key 'trian', did you mean 'train'"),
    "wrong value": ("train numbers --set train.steps=x", 78, "'train.steps' = 'x': input should be a valid integer"),
    "no value": ("train numbers --set train.steps", 78, "--set takes section.key=value, not 'train.steps'"),
    "unknown member": (
        "train numbers --set model.norm=laier",
        78,
        "'model.norm' = 'laier': unknown norm, did you mean 'layer'",
    ),
    "config is not toml": ("train {tmp}/broken.toml", 78, "broken.toml is not valid TOML"),
    "config with a typo": ("train {tmp}/typo.toml", 78, "typo.toml: unknown key 'data.knid', did you mean 'data.kind'"),
    "nothing to train on": ("train", 2, "say what to train on: --source FILE --target FILE"),
    "nothing but a kind": ("train translator", 2, "say what to train on"),
    "one side": ("train --source {corpus}/train.de", 78, "train.de, but data.target is missing"),
    "missing source": ("train --source nowhere.de --target {corpus}/train.en", 66, "there is no file nowhere.de"),
    "unequal sides": (
        "train --source {corpus}/train.de --target {corpus}/test.en",
        65,
        "train.de has 300 lines but .*test.en has 20",
    ),
    "out is in use": (
        "train --source {corpus}/train.de --target {corpus}/train.en --out {run}",
        73,
        "is not empty: go on with --resume, or choose another --out",
    ),
    "out is a file": ("train numbers --out {corpus}/test.de", 73, "is not empty: go on with --resume, or"),
    "a run without resume": ("train {run}", 2, "is a directory: to go on with a run, add --resume"),
    "resume what": ("train --resume", 2, "--resume needs the run directory"),
    "resume nothing": ("train nowhere --resume", 66, "there is no run directory nowhere"),
    "resume no run": ("train {tmp} --resume", 66, "is not a run directory: it has no config.toml"),
    "resume elsewhere": ("train {run} --resume --out {tmp}/x", 2, "a run goes on where it is: leave out --out"),
    "resume as rehearsal": ("train {run} --resume --dry-run", 2, "--resume trains: leave out --dry-run"),
    "resume on other kinds of data": (
        "train {run} --resume --tsv {corpus}/test.tsv",
        78,
        "'source' belongs to kind 'files', but the kind is 'tsv'",
    ),
    "train on a GPU that is not there": (
        "train numbers --device cuda:99 --out {tmp}/x",
        69,
        "device 'cuda:99' cannot be used",
    ),
    "translate on one": ("translate -m {run} --device cuda:99 x", 69, "device 'cuda:99' cannot be used"),
    "no such device": ("translate -m {run} --device gpu x", 69, "device 'gpu' cannot be used"),
    "no model": ("translate x", 66, "no built-in model .*name one of your own or set CLEARHEAD_MODEL"),
    "no such model": ("translate -m nowhere x", 66, "there is no model at nowhere"),
    "not a model": ("translate -m {corpus} x", 66, "neither a model directory nor a run directory"),
    "a damaged model": ("translate -m {damaged} x", 74, "model.safetensors is damaged"),
    "texts and a file": ("translate -m {run} -i {corpus}/test.de x", 2, "give texts or --input, not both"),
    "no such input": ("translate -m {run} -i nowhere", 66, "cannot read nowhere: No such file"),
    "input is a directory": ("translate -m {run} -i {corpus}", 66, "cannot read .*: Is a directory"),
    "more results than beams": (
        "translate -m {run} --beam 2 --nbest 3 x",
        2,
        "--nbest 3 needs a beam at least as large: --beam 3",
    ),
    "sampling flags without sampling": ("translate -m {run} --top-k 3 x", 2, "are about sampling: add --sample"),
    "a seed without sampling": ("translate -m {run} --seed 3 x", 2, "are about sampling: add --sample"),
    "sampling and searching": ("translate -m {run} --sample --beam 3 x", 2, "--sample draws and --beam searches"),
    "impossible probability": (
        "translate -m {run} --sample --top-p 3 x",
        2,
        "'top_p' = 3.0: input should be less than or equal to 1",
    ),
    "impossible lengths": ("translate -m {run} --min-len 9 --max-len 3 x", 2, "min_len = 9 is more than max_len = 3"),
    "score what": ("score", 2, "score either a --model or a file of --hypotheses"),
    "score both": ("score -m {run} --hypotheses x", 2, "score either a --model or a file of --hypotheses"),
    "score on what": ("score -m {run}", 2, "say what to score on: --source FILE --target FILE"),
    "score on half": ("score -m {run} --source {corpus}/test.de", 2, "say what to score on"),
    "score on two sets": ("score -m {run} --tsv {corpus}/test.tsv --split test", 2, "one test set at a time"),
    "unknown split": ("score -m {run} --split tset", 78, "unknown split 'tset': did you mean 'test'"),
    "a split that is not there": ("score -m {run} --split test", 78, "names no test data: use --source and --target"),
    "part of no split": (
        "score -m {run} --tsv {corpus}/test.tsv --part de",
        2,
        "--part is one of the parts of a --spl",
    ),
    "part of data without parts": ("score -m {run} --split validation --part de", 78, "has no parts: leave out --part"),
    "against nothing": ("score -m {run} --tsv {corpus}/test.tsv --against nowhere", 66, "cannot read nowhere"),
    "hypotheses against a model": (
        "score --hypotheses {corpus}/test.en --target {corpus}/test.en --against {run}",
        2,
        "compared with a file of translations: --against FILE",
    ),
    "pack over something": ("pack {run} --out {corpus}", 73, "exists: choose another --out"),
    "pack as what": ("pack {run} --out {tmp}/x --dtype float61", 78, "unknown number format .*did you mean 'float16'"),
    "a recipe for an absent set": (
        "train tatoeba-de-zh-en --out {tmp}/x",
        69,
        r"put deu.txt, cmn.hans.txt \(or .gz\) in",
    ),
    "hypotheses alone": ("score --hypotheses {corpus}/test.de", 2, "--hypotheses needs the references: --target FILE"),
    "hypotheses and a table": ("score --hypotheses x --target y --tsv z", 2, "leave out --tsv"),
    "hypotheses and a text": ("score --hypotheses x --target y --text z", 2, "leave out --text"),
    "hypotheses and a beam": ("score --hypotheses x --target y --beam 2", 2, "leave out --beam"),
    "hypotheses and an engine": ("score --hypotheses x --target y --engine onnx", 2, "leave out --engine"),
    "hypotheses and workers": ("score --hypotheses x --target y --workers 2", 2, "leave out --workers"),
    "hypotheses of another length": (
        "score --hypotheses {corpus}/train.en --target {corpus}/test.en",
        65,
        "300 hypotheses do not match 20 references",
    ),
    "save nowhere": (
        "score --hypotheses {corpus}/test.en --target {corpus}/test.en --save {tmp}/no/x",
        66,
        "there is no directory .*/no to save x in",
    ),
    "draw nowhere": ("inspect {run} eins --png {tmp}/no/x.png", 66, "there is no directory .*/no to write x.png in"),
    "growth drawn nowhere": ("bench growth --out {tmp}/no/x.png", 66, "there is no directory .*/no to write x.png in"),
    "info on nothing": ("info nowhere", 66, "there is no directory nowhere"),
    "info on a file": ("info {corpus}/test.de", 66, "is a file, not a model or run directory"),
    "info on another directory": ("info {corpus}", 66, "neither a model nor a run directory: it has no config.json"),
    "average of what": ("average {run} --out {tmp}/x", 2, "say which checkpoints to average: --last N or --best N"),
    "average of too many": ("average {run} --last 9 --out {tmp}/x", 65, "has 2 such checkpoints, not 9"),
    "average over something": ("average {run} --last 2 --out {corpus}", 73, "exists: choose another --out"),
    "average without out": ("average {run} --last 2", 2, "average needs --out"),
    "nothing to check": ("data check", 2, "name one kind of data to check"),
    "unknown set": ("data fetch multi", 78, "unknown data set 'multi': did you mean 'multi30k'"),
    "demo over something": ("demo --out {corpus}", 73, "was not made by the demo: choose another --out"),
}


@pytest.fixture
def places(tmp_path: Path, files_run: Path, corpus: Path) -> dict[str, str]:
    (tmp_path / "broken.toml").write_text("out = ", encoding="utf-8")
    (tmp_path / "typo.toml").write_text("data = {knid = 'numbers'}\ntrain = {steps = 1}\n", encoding="utf-8")
    damaged = tmp_path / "damaged"
    shutil.copytree(files_run / "model", damaged)
    weights = bytearray((damaged / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (damaged / "model.safetensors").write_bytes(weights)
    return {"tmp": str(tmp_path), "run": str(files_run), "corpus": str(corpus), "damaged": str(damaged)}


@pytest.fixture(autouse=True)
def nothing_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No built-in model, and no data sets."""
    monkeypatch.delenv("CLEARHEAD_MODEL", raising=False)
    monkeypatch.setattr("clearhead.run.built_in.assets", lambda: tmp_path / "no assets")
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path / "no data"))


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_one_line_and_an_exit_code(clearhead: Clearhead, places: dict[str, str], case: str) -> None:
    words, code, message = WRONG[case]
    said = clearhead(*words.format(**places).split(" "))
    assert_one_line(said, code, message)


def assert_one_line(said: Any, code: int, message: str) -> None:
    assert (said.code, said.out) == (code, ""), said.err
    assert said.err.startswith("clearhead: ") and said.err.count("\n") == 1 and said.err.endswith("\n")
    assert re.search(message, said.err), said.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"elf\n\xff\n", "standard input line 2 is not UTF-8"),
        ("elf\n".encode("utf-16"), "standard input line 1 is not UTF-8"),
        (b"elf\n" + b"x" * 2_000_000, "standard input line 2 is longer than a megabyte"),
        (b"elf\n" + b"x " * 5_000, r"text 2 has .* tokens, and this model reads at most 255: split it"),
        (b"\x1f\x8b\x08\x00\x00", "standard input after line 0: the gzip data is damaged"),
    ],
    ids=["not utf-8", "utf-16", "endless line", "long text", "cut gzip"],
)
def test_what_cannot_be_read_is_named_with_its_line(
    clearhead: Clearhead, files_run: Path, text: bytes, message: str
) -> None:
    assert_one_line(clearhead("translate", "-m", files_run, stdin=text), 65, message)


def test_a_lone_surrogate_on_the_command_line_is_named(clearhead: Clearhead, files_run: Path) -> None:
    assert_one_line(clearhead("translate", "-m", files_run, "a\udcff"), 65, r"lone surrogate U\+DCFF")


def test_a_damaged_description_is_a_storage_error(clearhead: Clearhead, files_run: Path, tmp_path: Path) -> None:
    for name, content, message in (
        ("config.json", "{", "config.json is not valid JSON"),
        ("config.json", "[]", "config.json should hold one JSON object"),
        ("training_config.toml", "out =", "training_config.toml is not valid TOML"),
        ("model.safetensors", "x", "model.safetensors is not a safetensors file"),
    ):
        model = tmp_path / name / str(len(content))
        shutil.copytree(files_run / "model", model)
        (model / name).write_text(content, encoding="utf-8")
        assert_one_line(clearhead("info", model), 74, message)


def test_a_bug_says_so_and_how_to_see_where(
    clearhead: Clearhead, files_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("a line\nand another")

    monkeypatch.setattr("clearhead.run.using.load", broken)
    words = ("translate", "-m", files_run, "x")
    expected = (
        r"this is a bug in clearhead: ZeroDivisionError: a line and another \(CLEARHEAD_TRACEBACK=1 shows where\)"
    )
    assert_one_line(clearhead(*words), 70, expected)
    monkeypatch.setenv("CLEARHEAD_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        clearhead(*words)


class OutOfMemoryError(RuntimeError):
    """Called as torch calls its own, which is not imported here."""


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), OutOfMemoryError()]
)
def test_too_little_memory_is_no_bug(
    clearhead: Clearhead, files_run: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def large(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("clearhead.run.using.load", large)
    assert_one_line(clearhead("translate", "-m", files_run, "x"), 69, "there is not enough memory for this: use a ")


def test_a_disk_that_fails_is_no_bug(clearhead: Clearhead, files_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr("clearhead.run.using.load", full)
    said = clearhead("translate", "-m", files_run, "x")
    assert_one_line(said, 74, r"cannot read or write: No space left on device \(somewhere\)")


def test_ctrl_c_is_no_bug(clearhead: Clearhead, files_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("clearhead.run.using.load", stopped)
    assert_one_line(clearhead("translate", "-m", files_run, "x"), 130, "interrupted")


def test_messages_cannot_paint_the_terminal(clearhead: Clearhead) -> None:
    said = clearhead("info", "a\x1b[31m\nb")
    assert said.code == 66 and "\x1b" not in said.err and said.err.count("\n") == 1


def test_a_broken_environment_setting_is_a_config_error(clearhead: Clearhead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_TRAIN__STPES", "3")
    assert_one_line(clearhead("train", "numbers"), 78, "unknown key 'train.stpes', did you mean 'train.steps'")


def test_lines_before_a_bad_one_are_not_lost(files_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clearhead.cli import run
    from clearhead.run import translating

    monkeypatch.setattr(translating, "WINDOW", 2)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"elf\nelf\n\xff\n")))
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    assert run(["translate", "-m", str(files_run), "--beam", "1"]) == 65
    assert out.getvalue().count("\n") == 2
