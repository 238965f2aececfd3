"""Events and tables in, a terminal out: how things look is decided here; data goes to stdout, the rest to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from clearhead.train.events import Event


def console() -> Console:
    """A console on stderr: colour and bars only on a terminal, and none under NO_COLOR."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def fail(message: str) -> None:
    """One line that says what went wrong."""
    line = " ".join(message.split())
    sys.stderr.write(f"clearhead: {line}\n")


def note(message: str) -> None:
    """One line that says what is going on."""
    from rich.text import Text

    console().print(Text(message))


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """A small table on stderr; cells are text, never markup."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=Text(title), title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        drawn.add_column(Text(column, style="bold"), overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(str(cell)) for cell in row))
    console().print(drawn)


def training(events: Iterable[Event]) -> Iterator[Event]:
    """Show a training run as it goes, with a live bar on a terminal and plain lines elsewhere; pass the events on."""
    screen = console()
    if screen.is_terminal:
        yield from _with_bar(events, screen)
    else:
        for event in events:
            for line in _lines(event):
                note(line)
            yield event


def _with_bar(events: Iterable[Event], screen: Console) -> Iterator[Event]:
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.text import Text

    from clearhead.train.events import Finished, Started
    from clearhead.train.events import Progress as StepProgress
    from clearhead.train.logbook import sentence

    bar = Progress(BarColumn(bar_width=24), TextColumn("{task.description}", markup=False), console=screen)
    task = bar.add_task("preparing", total=None)
    with bar:
        for event in events:
            if isinstance(event, StepProgress):
                bar.update(task, total=event.total_steps, completed=event.step, description=sentence(event))
            else:
                if isinstance(event, Started):
                    bar.update(task, total=event.total_steps, completed=event.step, description="first steps")
                if isinstance(event, Finished):
                    bar.update(task, visible=False)
                for line in _lines(event):
                    bar.console.print(Text(line))
            yield event


def _lines(event: Event) -> list[str]:
    from clearhead.train.events import Saved, Validated
    from clearhead.train.logbook import sentence

    if isinstance(event, Saved):
        return []
    lines = [sentence(event)]
    if isinstance(event, Validated):
        for sample in event.samples:
            lines += [f"  source      {sample.source}", f"  reference   {sample.reference}"]
            lines += [f"  hypothesis  {sample.hypothesis}", ""]
    return lines


@contextmanager
def counting(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A bar for work that counts up; call the yielded function with how many are done."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    screen = console()
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, disable=not screen.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
