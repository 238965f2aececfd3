"""`clearhead data`: names of files come in; what is in them and what is wrong with them goes to stdout."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

from clearhead.cli import show
from clearhead.cli.flags import Json
from clearhead.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from clearhead.data.doctor import Checkup
    from clearhead.data.report import Lengths, Report
    from clearhead.data.sources import DataConfig

app = App(name="data", help="Look at training data before it is used.")

_BAR_WIDTH = 24


@app.command
def check(
    *,
    source: Path | None = None,
    target: Path | None = None,
    tsv: Path | None = None,
    validation_source: Path | None = None,
    validation_target: Path | None = None,
    validation_tsv: Path | None = None,
    columns: str = "1,2",
    max_chars: int = 1000,
    max_ratio: float = 4.0,
    as_json: Json = False,
) -> None:
    """Count which pairs can be used, and why others cannot; measure them; find validation data in training data.

    clearhead data check --source a.de --target a.en

    Parameters
    ----------
    source
        File with one source sentence a line, plain or gzip.
    target
        File with the translation of each line.
    tsv
        One tab-separated file instead of two.
    validation_source
        Source side of the validation data.
    validation_target
        Target side of the validation data.
    validation_tsv
        Validation data as one tab-separated file.
    columns
        Source and target column of the tab-separated files, counted from 1.
    max_chars
        Leave out pairs with more characters than this on either side.
    max_ratio
        Leave out pairs in which one side has more than this many times the UTF-8 bytes of the other.
    """
    if (source or target or tsv) is None:
        raise UsageError("name the data to check: --source FILE --target FILE, or --tsv FILE")
    paths = {
        "source": source,
        "target": target,
        "tsv": tsv,
        "validation_source": validation_source,
        "validation_target": validation_target,
        "validation_tsv": validation_tsv,
    }
    tree: dict[str, Any] = {name: str(path) for name, path in paths.items() if path is not None}
    tree |= {"kind": "tsv" if tsv else "files", "columns": _parse_columns(columns)}
    tree |= {"limits": {"max_chars": max_chars, "max_ratio": max_ratio}}

    from clearhead.config import build
    from clearhead.data.sources import DataConfig

    checkup = _check(build(DataConfig, tree, "the command line"))
    if as_json:
        sys.stdout.write(json.dumps(_as_json(checkup), ensure_ascii=False, indent=2) + "\n")
    else:
        _show(checkup)


@app.command(name="list")
def list_sets(*, as_json: Json = False) -> None:
    """Name the data sets that recipes can use, and say which are here."""
    from clearhead.data.sets import SETS, is_here

    if as_json:
        sets = {
            name: {"is_here": is_here(name), "bytes": known.bytes, "licence": known.licence, "what": known.what}
            for name, known in SETS.items()
        }
        sys.stdout.write(json.dumps(sets, ensure_ascii=False, indent=2) + "\n")
        return
    for name, known in SETS.items():
        here = "here" if is_here(name) else "absent"
        size = readable_size(known.bytes)
        sys.stdout.write(
            f"{name:<{max(map(len, SETS))}}  {here:<6}  {size:>9}  {known.what}; licence: {known.licence}\n"
        )


@app.command
def fetch(name: str, /) -> None:
    """Download a named data set, check it, and say where it lies.

    clearhead data fetch multi30k

    Parameters
    ----------
    name
        A name that clearhead data list shows.
    """
    from clearhead.data.sets import fetch as fetch_set

    with show.console().status(f"fetching {name}") as status:

        def tell(what: str, done: int, total: int | None) -> None:
            of = f" of {readable_size(total)}" if total else ""
            status.update(f"{what}: {readable_size(done)}{of}")

        folder = fetch_set(name, tell)
    sys.stdout.write(f"{folder}\n")


def readable_size(count: int) -> str:
    """Bytes as people say them.

    >>> readable_size(4_300_000), readable_size(900)
    ('4.3 MB', '900 bytes')
    """
    for size, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.1f} {name}"
    return f"{count} bytes"


def _parse_columns(text: str) -> list[int]:
    try:
        source, target = (int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--columns takes two column numbers such as 1,2, not '{text}'") from None
    return [source, target]


def _check(config: DataConfig) -> Checkup:
    from clearhead.data import doctor, sources
    from clearhead.training.events import Pace

    training, validation = sources.open_source(config, "train"), sources.open_source(config, "validation")
    assert training is not None
    with show.waiting("reading") as tell:
        pace = Pace("checking")

        def progress(done: int) -> None:
            if reading := pace.at(done, training.share_read()):
                tell(reading)

        return doctor.check(training, config.limits, validation, progress=progress)


def _as_json(checkup: Checkup) -> dict[str, Any]:
    validation = checkup.validation.report.as_json() if checkup.validation else None
    return {**checkup.report.as_json(), "validation": validation}


def _show(checkup: Checkup) -> None:
    console = show.console(stderr=False)
    reports = [checkup.report] + ([checkup.validation.report] if checkup.validation else [])
    for report in reports:
        _show_counts(console, report)
    _show_lengths(console, "source", checkup.report.source_lengths)
    _show_lengths(console, "target", checkup.report.target_lengths)
    if checkup.report.leakage:
        console.print(checkup.report.leakage.sentence)
    for note in checkup.report.notes:
        show.note(f"note: {note}")


def _show_counts(console: Console, report: Report) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("pairs")
    for name in ("count", "share", "first line"):
        table.add_column(name, justify="right")
    table.add_row(Text("kept", style="green"), f"{report.kept:,}", f"{report.kept_percent} %", "")
    for reason, entry in report.dropped.items():
        share = 100 * entry.count / report.total
        shown = f"{share:.1f} %" if share >= 0.1 else "< 0.1 %"
        table.add_row(Text(reason.label, style="yellow"), f"{entry.count:,}", shown, entry.place.removeprefix("line "))
    table.add_row("all", f"{report.total:,}", "", "")
    console.print(report.name, style="bold")
    console.print(table)
    console.print()


def _show_lengths(console: Console, side: str, lengths: Lengths) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right", min_width=11)
    table.add_column(justify="right")
    table.add_column(no_wrap=True)
    most = max(bucket.count for bucket in lengths.histogram)
    for bucket in itertools.dropwhile(lambda bucket: not bucket.count, lengths.histogram):
        table.add_row(bucket.label, f"{bucket.count:,}", "█" * -(-bucket.count * _BAR_WIDTH // most))
    console.print(f"{side} characters", style="bold")
    console.print(table)
    console.print(lengths.sentence)
    console.print()
