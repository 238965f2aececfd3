"""`clearhead data check`: files of every kind of data in, tables of what is in them and what is wrong with them out."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.cli import show
from clearhead.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from clearhead.data.checkups import Findings
    from clearhead.data.doctor import Checkup
    from clearhead.data.picture_files import PictureSet
    from clearhead.data.report import Lengths, Report
    from clearhead.data.sources import DataConfig
    from clearhead.data.tables import Column

BAR_WIDTH = 24
MOST_LABELS = 20
"""Of more labels, these many are shown, the most frequent."""


def check_pairs(
    paths: Mapping[str, Path | None], columns: str, max_chars: int, max_ratio: float, *, as_json: bool
) -> None:
    """Show what the doctor finds in pairs of sentences."""
    tree: dict[str, Any] = {name: str(path) for name, path in paths.items() if path is not None}
    tree |= {"kind": "tsv" if "tsv" in tree else "files", "columns": _column_numbers(columns)}
    tree |= {"limits": {"max_chars": max_chars, "max_ratio": max_ratio}}

    from clearhead.config import build
    from clearhead.data.sources import DataConfig

    checkup = _checked(build(DataConfig, tree, "the command line"))
    if as_json:
        validation = checkup.validation.report.as_json() if checkup.validation else None
        _write_json({**checkup.report.as_json(), "validation": validation})
    else:
        _show_pairs(checkup)


def check_text(path: Path | None, validation: Path | None, *, as_json: bool) -> None:
    """Show what is in a text."""
    from clearhead.data import checkups

    assert path is not None
    with _reading("lines") as progress:
        found = checkups.check_text(path, validation, progress)
    _show_findings(found, as_json)


def check_labelled(path: Path | None, validation: Path | None, columns: str, *, as_json: bool) -> None:
    """Show what is in labelled texts."""
    from clearhead.data import checkups

    assert path is not None
    with _reading("texts") as progress:
        found = checkups.check_labelled(path, validation, _column_names(columns), progress)
    _show_findings(found, as_json)


def check_pictures(
    path: Path | None, validation: Path | None, labels: tuple[Path | None, Path | None], *, as_json: bool
) -> None:
    """Show what is in labelled pictures."""
    from clearhead.config import build
    from clearhead.data import checkups
    from clearhead.data.pictures import PicturesConfig, open_set

    assert path is not None
    files = {
        "pictures": path,
        "picture_labels": labels[0],
        "validation_pictures": validation,
        "validation_picture_labels": labels[1],
    }
    tree = {name: str(file) for name, file in files.items() if file is not None}
    config = build(PicturesConfig, tree, "the command line")
    trained = open_set(config, "train")
    assert trained is not None
    held: PictureSet | None = open_set(config, "validation", trained.labels)
    with _reading("pictures") as progress:
        found = checkups.check_pictures(trained, held, progress)
    _show_findings(found, as_json)


@contextmanager
def _reading(unit: str) -> Iterator[Callable[[int, float], None]]:
    from clearhead.training.events import Pace

    with show.waiting("reading") as tell:
        pace = Pace("checking", unit=unit)

        def progress(done: int, share: float) -> None:
            if reading := pace.at(done, share):
                tell(reading)

        yield progress


def _column_numbers(text: str) -> list[int]:
    try:
        source, target = (int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--columns takes two column numbers such as 1,2, not '{text}'") from None
    return [source, target]


def _column_names(text: str) -> tuple[Column, Column]:
    parts = [int(part) if part.strip().isdecimal() else part.strip() for part in text.split(",")]
    if len(parts) != 2:
        raise UsageError(f"--columns takes the columns of text and label such as text,label, not '{text}'")
    return parts[0], parts[1]


def _checked(config: DataConfig) -> Checkup:
    from clearhead.data import doctor, sources

    training, validation = sources.open_source(config, "train"), sources.open_source(config, "validation")
    assert training is not None
    with _reading("pairs") as tell:
        return doctor.check(
            training, config.limits, validation, progress=lambda done: tell(done, training.share_read())
        )


def _write_json(tree: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(tree, ensure_ascii=False, indent=2) + "\n")


def _show_pairs(checkup: Checkup) -> None:
    console = show.console(stderr=False)
    reports: list[Report] = [checkup.report] + ([checkup.validation.report] if checkup.validation else [])
    for report in reports:
        dropped = ((reason.label, entry.count, entry.place) for reason, entry in report.dropped.items())
        _show_counts(console, report.name, "pairs", report.total, report.kept, dropped)
    _show_lengths(console, "source characters", checkup.report.source_lengths)
    _show_lengths(console, "target characters", checkup.report.target_lengths)
    if checkup.report.leakage:
        console.print(checkup.report.leakage.sentence)
    for note in checkup.report.notes:
        show.note(f"note: {note}")


def _show_findings(findings: list[Findings], as_json: bool) -> None:
    if as_json:
        first, validation = findings[0].as_json(), findings[1].as_json() if len(findings) > 1 else None
        _write_json({**first, "validation": validation})
        return
    console = show.console(stderr=False)
    for found in findings:
        dropped = ((reason, entry.count, entry.place) for reason, entry in found.dropped.items())
        _show_counts(console, found.name, found.unit, found.total, found.kept, dropped)
        if found.labels:
            _show_labels(console, found.labels)
    for found in findings:
        if found.seen_before is not None:
            console.print(f"validation: {found.seen_before:,} of {found.kept:,} {found.unit} also occur in training")
    if findings[0].lengths is not None:
        _show_lengths(console, "characters", findings[0].lengths)
    if findings[0].coverage is not None:
        for line in findings[0].coverage.lines():
            console.print(line)
    for note in (note for found in findings for note in found.notes):
        show.note(f"note: {note}")


def _show_counts(
    console: Console, name: str, unit: str, total: int, kept: int, dropped: Iterable[tuple[str, int, str]]
) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column(unit)
    for head in ("count", "share", "first"):
        table.add_column(head, justify="right")
    # Rounded down, so that 100 means all.
    table.add_row(Text("kept", style="green"), f"{kept:,}", f"{int(1000 * kept / max(total, 1)) / 10} %", "")
    for reason, count, place in dropped:
        share = 100 * count / total
        shown = f"{share:.1f} %" if share >= 0.1 else "< 0.1 %"
        table.add_row(Text(reason, style="yellow"), f"{count:,}", shown, Text(place.removeprefix(f"{name} ")))
    table.add_row("all", f"{total:,}", "", "")
    console.print(name, style="bold")
    console.print(table)
    console.print()


def _show_labels(console: Console, labels: Mapping[str, int]) -> None:
    ranked = sorted(labels.items(), key=lambda entry: -entry[1])
    more = f", and {len(ranked) - MOST_LABELS:,} more" if len(ranked) > MOST_LABELS else ""
    _show_bars(console, f"labels: {len(ranked):,}{more}", ranked[:MOST_LABELS])


def _show_lengths(console: Console, title: str, lengths: Lengths) -> None:
    filled = itertools.dropwhile(lambda bucket: not bucket.count, lengths.histogram)
    _show_bars(console, title, [(bucket.label, bucket.count) for bucket in filled], lengths.sentence)


def _show_bars(console: Console, title: str, rows: list[tuple[str, int]], below: str | None = None) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right", min_width=11)
    table.add_column(justify="right")
    table.add_column(no_wrap=True)
    most = max((count for _, count in rows), default=0) or 1
    for name, count in rows:
        table.add_row(Text(show.printable(name)), f"{count:,}", "█" * -(-count * BAR_WIDTH // most))
    console.print(title, style="bold")
    console.print(table)
    if below is not None:
        console.print(below)
    console.print()
