"""`clearhead data`: names of files come in; what is in them and what is wrong with them goes to stdout."""

from __future__ import annotations

import itertools
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

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
    source: str | None = None,
    target: str | None = None,
    tsv: str | None = None,
    validation_source: str | None = None,
    validation_target: str | None = None,
    validation_tsv: str | None = None,
    columns: str = "1,2",
    max_chars: int = 1000,
    max_ratio: float = 4.0,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Count which pairs can be used and why others cannot, measure them, and look for validation data in training data.

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
    as_json
        Write one JSON object instead of tables.
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
    tree: dict[str, Any] = {name: path for name, path in paths.items() if path is not None}
    tree |= {"kind": "tsv" if tsv else "files", "columns": _parse_columns(columns)}
    tree |= {"limits": {"max_chars": max_chars, "max_ratio": max_ratio}}

    from clearhead.config import build
    from clearhead.data.sources import DataConfig

    checkup = _check(build(DataConfig, tree, "the command line"))
    if as_json:
        sys.stdout.write(json.dumps(_as_json(checkup), ensure_ascii=False, indent=2) + "\n")
    else:
        _show(checkup)


def _parse_columns(text: str) -> list[int]:
    try:
        source, target = (int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--columns takes two column numbers such as 1,2, not '{text}'") from None
    return [source, target]


def _check(config: DataConfig) -> Checkup:
    from rich.console import Console

    from clearhead.data import doctor, sources

    training, validation = sources.open_source(config, "train"), sources.open_source(config, "validation")
    assert training is not None
    with Console(stderr=True).status("reading") as status:
        return doctor.check(
            training, config.limits, validation, progress=lambda done: status.update(f"{done:,} pairs read")
        )


def _as_json(checkup: Checkup) -> dict[str, Any]:
    validation = checkup.validation.report.as_json() if checkup.validation else None
    return {**checkup.report.as_json(), "validation": validation}


def _show(checkup: Checkup) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    reports = [checkup.report] + ([checkup.validation.report] if checkup.validation else [])
    for report in reports:
        _show_counts(console, report)
    _show_lengths(console, "source", checkup.report.source_lengths)
    _show_lengths(console, "target", checkup.report.target_lengths)
    if checkup.report.leakage:
        console.print(checkup.report.leakage.sentence)
    notes = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    for note in checkup.report.notes:
        notes.print(f"note: {note}")


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
        table.add_row(Text(reason.label, style="yellow"), f"{entry.count:,}", shown, f"{entry.first_line:,}")
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
