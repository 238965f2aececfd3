"""Events and tables in, a terminal out: how things look is decided here; data goes to stdout, the rest to stderr."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from clearhead.training.events import Event, Reading

BAR_WIDTH = 24
LEAST_BAR_WIDTH = 8
SPARED = ("gnorm", "lr", "ppl")
"""What a narrow terminal is not told, in this order."""

SELDOM_SECONDS = 10.0
"""In a pipe, how far reading has come is told no more often."""

_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")


def console(*, stderr: bool = True) -> Console:
    """A console on stderr or stdout: colour and bars only on a terminal, and none under NO_COLOR.

    Of several processes that torchrun has started, the first tells people how it goes.
    """
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            # rich would exit with 1; a reader who has seen enough is no failure.
            raise BrokenPipeError

    quiet = stderr and not _is_first("RANK")
    # While a bar moves, sys.stderr is one of rich's own that writes into a console.
    file: Any = _Commentary(getattr(sys.stderr, "rich_proxied_file", sys.stderr)) if stderr else None
    return Screen(file=file, stderr=stderr, highlight=False, markup=False, soft_wrap=True, quiet=quiet)


class _Commentary:
    """Stderr, which only comments: when it takes no more, the work goes on in silence."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            turn_away(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            turn_away(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def turn_away(stream: TextIO) -> None:
    """Let what a stream still holds, and all that follows, go nowhere: it must not fail again when Python exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def fail(message: str, *, is_bug: bool = False) -> None:
    """One line that says what went wrong; of the processes of torchrun on one host, the first says it for all."""
    if not is_bug and not _is_first("LOCAL_RANK"):
        return
    line = printable(" ".join(message.split()))
    _Commentary(sys.stderr).write(f"clearhead: {line}\n")


def _is_first(rank: str) -> bool:
    """Whether this process is alone, or the first by one of the numbers that torchrun gives it."""
    return "WORLD_SIZE" not in os.environ or os.environ.get(rank, "0") == "0"


def program() -> str:
    """How the user would start this program again from here: by name, or by path where it is not on the search path."""
    started = Path(sys.argv[0])
    if started.name != "clearhead" or shutil.which("clearhead"):
        return "clearhead"
    here = Path.cwd()
    return shlex.quote(str(started.relative_to(here) if started.is_relative_to(here) else started))


def address(page: Path) -> str:
    """Where a page is, in the form that terminals make clickable and every browser takes."""
    return page.resolve().as_uri()


def note(message: str) -> None:
    """One line that says what is going on."""
    console().print(_text(message))


def data(line: str) -> None:
    """One line of data on stdout, as it is; only a terminal is spared control characters."""
    sys.stdout.write((printable(line) if sys.stdout.isatty() else line) + "\n")


def printable(line: str) -> str:
    r"""Text that cannot move the cursor or change colours.

    >>> printable("a\x1b[31mb")
    'a�[31mb'
    """
    return _CONTROL.sub("\ufffd", line)


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """A small table on stderr; cells are text, never markup."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=Text(title), title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        drawn.add_column(Text(column, style="bold"), overflow="fold")
    for row in rows:
        drawn.add_row(*(_text(str(cell)) for cell in row))
    console().print(drawn)


def training(events: Iterable[Event]) -> Iterator[Event]:
    """Show a training run as it goes, with a live bar on a terminal and plain lines elsewhere; pass the events on."""
    screen = console()
    if screen.is_terminal:
        yield from _with_bar(events, screen)
    else:
        seldom = _Seldom()
        for event in events:
            if seldom.allows(event):
                for line in _lines(event):
                    note(line)
            yield event


class _Seldom:
    """Lets all events pass, but of those that tell how far reading has come only one now and then."""

    def __init__(self) -> None:
        self._due = 0.0

    def allows(self, event: Event) -> bool:
        from clearhead.training.events import Reading

        now = time.monotonic()
        if isinstance(event, Reading):
            if now < self._due:
                return False
            self._due = now + SELDOM_SECONDS
        return True


def _with_bar(events: Iterable[Event], screen: Console) -> Iterator[Event]:
    from rich.progress import BarColumn, Progress, TextColumn

    from clearhead.training.events import Progress as StepProgress
    from clearhead.training.events import Reading, Started
    from clearhead.training.logbook import sentence

    width = min(BAR_WIDTH, max(LEAST_BAR_WIDTH, screen.width - 90))
    columns = (BarColumn(bar_width=width), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("preparing", total=None)
        for event in events:
            if isinstance(event, StepProgress):
                told = fitted(sentence(event), screen.width - width - 2)
                bar.update(task, total=event.total_steps, completed=event.step, description=told)
            elif isinstance(event, Reading):
                bar.update(task, total=event.total_pairs, completed=event.pairs, description=sentence(event))
            else:
                if isinstance(event, Started):
                    bar.update(task, total=event.total_steps, completed=event.step, description="first steps")
                for line in _lines(event):
                    screen.print(_text(line))
            yield event


def fitted(line: str, room: int) -> str:
    """A progress line without what a narrow terminal has no room for.

    >>> fitted("step 5/9  loss 2.314  ppl 10.1  lr 4.2e-4  gnorm 0.83  eta 0:12:31", 50)
    'step 5/9  loss 2.314  ppl 10.1  eta 0:12:31'
    """
    parts = line.split("  ")
    for name in SPARED:
        if len("  ".join(parts)) > room:
            parts = [part for part in parts if not part.startswith(name)]
    return "  ".join(parts)


def _lines(event: Event) -> list[str]:
    from clearhead.training.events import Saved, Validated
    from clearhead.training.logbook import sentence, told

    if isinstance(event, Saved):
        return []
    lines = [sentence(event)]
    if isinstance(event, Validated):
        for sample in event.samples:
            lines += [*told(sample, event.heads), ""]
    return lines


@contextmanager
def waiting(what: str) -> Iterator[Callable[[Reading], None]]:
    """Something that moves on a terminal; call the yielded function with how far reading has come."""
    from clearhead.training.logbook import sentence

    screen = console()
    seldom = _Seldom()
    with screen.status(what) as status:

        def tell(reading: Reading) -> None:
            if screen.is_terminal:
                status.update(sentence(reading))
            elif seldom.allows(reading):
                note(sentence(reading))

        yield tell


@contextmanager
def doing(what: str) -> Iterator[Callable[[str], None]]:
    """Something that moves on a terminal; call the yielded function with what is being done."""
    screen = console()
    with screen.status(what) as status:
        yield lambda now: status.update(now) if screen.is_terminal else None


@contextmanager
def counting(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A bar for work that counts up; call the yielded function with how many are done."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.1f}/s" if task.speed else "")

    screen = console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=BAR_WIDTH),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    hidden = not screen.is_terminal
    # What is written to stdout meanwhile is data: left to itself, the bar would send it to stderr.
    with Progress(*columns, console=screen, disable=hidden, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def _text(line: str) -> Text:
    from rich.text import Text

    return Text("\n".join(printable(part) for part in line.split("\n")))
