"""How things look: plain lines in a pipe, a bar that fits on a terminal, nothing that paints unasked."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from clearhead.cli import run, show
from clearhead.training.events import Event, Finished, Noted, Progress, Reading, Sample, Saved, Started, Validated

EVENTS: tuple[Event, ...] = (
    Noted("[bold]not markup[/bold] :smile:"),
    Started(0, 20000, 1_000_000, "cpu", "fp32"),
    Progress(1200, 20000, 1, 2.3141, 10.12, 4.2e-4, 0.8345, 18_437.0, 751.0),
    Validated(1200, 2.2, 9.0, True, (Sample("ein \x1b[31mHaus", "a house", "a \x07[red]mouse[/]"),)),
    Saved(1200, Path("runs/x/checkpoints/step-1200")),
    Finished(1200, "done", 80.0, 1200, 2.2, Path("runs/x/model")),
)


def test_in_a_pipe_a_run_is_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert tuple(show.training(EVENTS)) == EVENTS
    out, err = capsys.readouterr()
    assert out == "" and "\x1b" not in err and "\x07" not in err
    assert err.splitlines() == [
        "[bold]not markup[/bold] :smile:",
        "starting: 20000 steps, 1.00 M parameters, on cpu in fp32",
        "step 1200/20000  loss 2.314  ppl 10.1  lr 4.2e-4  gnorm 0.83  18.4k tok/s  eta 0:12:31",
        "validation at step 1200: loss 2.200  ppl 9.00  best so far",
        "  source      ein \ufffd[31mHaus",
        "  reference   a house",
        "  hypothesis  a \ufffd[red]mouse[/]",
        "",
        "done at step 1200 after 0:01:20; best loss 2.200 at step 1200",
    ]


@pytest.mark.parametrize("width", [64, 80, 100, 200])
def test_on_a_terminal_the_bar_fits_and_the_time_left_is_never_cut(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    drawn = io.StringIO()
    screen = Console(file=drawn, force_terminal=True, width=width, color_system="standard", _environ={})
    monkeypatch.setattr(show, "console", lambda: screen)
    seen = []
    for event in show.training(EVENTS):
        seen.append(event)
        if isinstance(event, Progress):
            screen.print("")  # Draws the bar again, below.
    assert tuple(seen) == EVENTS
    bars = [line for line in drawn.getvalue().replace("\r", "\n").split("\n") if "1200/20000" in line and "━" in line]
    assert bars
    for bar in bars:
        assert "eta 0:12:31" in bar and ("gnorm" in bar) == (width >= 100)


READINGS = (
    Reading("checking", 1_200_000, None, 81_000.0, 125.0),
    Reading("tokenising", 2_500_000, 10_000_000, 32_100.0, 233.0),
    Reading("tokenising", 2_600_000, 10_000_000, 32_100.0, None),
)


def test_in_a_pipe_reading_is_told_seldom(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert tuple(show.training(READINGS)) == READINGS
    assert capsys.readouterr().err == "checking 1,200,000 pairs  81.0k pairs/s  eta 0:02:05\n"
    monkeypatch.setattr(show, "SELDOM_SECONDS", 0.0)
    with show.waiting("reading") as tell:
        for reading in READINGS[1:]:
            tell(reading)
    assert capsys.readouterr().err.splitlines() == [
        "tokenising 2,500,000 of 10,000,000 pairs  32.1k pairs/s  eta 0:03:53",
        "tokenising 2,600,000 of 10,000,000 pairs  32.1k pairs/s",
    ]


def test_on_a_terminal_reading_moves_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = io.StringIO()
    screen = Console(file=drawn, force_terminal=True, width=100, color_system="standard", _environ={})
    monkeypatch.setattr(show, "console", lambda: screen)
    for _ in show.training(READINGS[1:2]):
        screen.print("")  # Draws the bar again, below.
    assert "tokenising 2,500,000 of 10,000,000 pairs  32.1k pairs/s  eta 0:03:53" in drawn.getvalue()


def test_a_run_that_breaks_off_takes_its_bar_along(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, _environ={})
    monkeypatch.setattr(show, "console", lambda: screen)

    def breaking() -> Iterator[Event]:
        yield EVENTS[1]
        raise ValueError("diverged")

    with pytest.raises(ValueError, match="diverged"):
        list(show.training(breaking()))
    assert screen._live_stack == []


def test_a_bar_leaves_data_on_stdout_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, _environ={})
    monkeypatch.setattr(show, "console", lambda: screen)
    with show.counting("translating", 2) as done:
        print("data")  # noqa: T201
        done(1)
    assert capsys.readouterr().out == "data\n"


def test_a_failure_is_one_line_whatever_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    show.fail("first\nsecond\r\n\tthird \x1b[2J")
    assert capsys.readouterr().err == "clearhead: first second third \ufffd[2J\n"


def test_tables_show_cells_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    show.table("[b]title", ("one", "two"), [("[red]x[/]", 1), ("二十三", None)])
    out, err = capsys.readouterr()
    assert out == "" and [line.split() for line in err.splitlines()] == [
        ["[b]title"],
        ["one", "two"],
        ["[red]x[/]", "1"],
        ["二十三", "None"],
    ]


def test_the_program_is_named_as_it_can_be_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    for started, named in ((".venv/bin/clearhead", ".venv/bin/clearhead"), ("/else/where/clearhead",) * 2):
        monkeypatch.setattr("sys.argv", [started])
        assert show.program() == named
    monkeypatch.setattr("sys.argv", [str(tmp_path / ".venv/bin/clearhead")])
    assert show.program() == ".venv/bin/clearhead"
    monkeypatch.setattr("sys.argv", ["pytest"])
    assert show.program() == "clearhead"


def test_a_program_on_the_search_path_goes_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "clearhead").write_text("", encoding="utf-8")
    (tmp_path / "clearhead").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", [str(tmp_path / "clearhead")])
    assert show.program() == "clearhead"


LABELS = ("good", "\x1b[31mbad\x9b")


def test_data_are_as_they_are_and_only_a_terminal_is_spared_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show.data(LABELS[1])
    assert capsys.readouterr().out == f"{LABELS[1]}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    show.data(LABELS[1])
    assert capsys.readouterr().out == "\ufffd[31mbad\ufffd\n"


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_model_from_elsewhere_cannot_paint_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    facts = {"format_version": 1, "kind": "classifier", "labels": LABELS}
    (tmp_path / "config.json").write_text(json.dumps(facts), encoding="utf-8")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run(["info", str(tmp_path), *flags]) == 0
    out = capsys.readouterr().out
    assert "bad" in out and "\x1b" not in out and "\x9b" not in out
