"""`clearhead data`: names of files come in; what is in them and what is wrong with them goes to stdout."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from clearhead.cli import show
from clearhead.cli.flags import Count, Json, Threads, Workers, refuse
from clearhead.errors import UsageError

app = App(name="data", help="Look at training data before it is used.")

MAX_CHARS, MAX_RATIO = 1000, 4.0
"""What `Limits` has, too; reading it from there would load pydantic for help."""
BEGINNINGS = {
    "pairs": ("source", "target", "tsv"),
    "text": ("text",),
    "labelled": ("labelled",),
    "pictures": ("pictures",),
}
"""The kinds of data that can be checked, and the flags of which one says that it is this kind."""


@app.command
def check(
    *,
    source: Path | None = None,
    target: Path | None = None,
    tsv: Path | None = None,
    text: Path | None = None,
    labelled: Path | None = None,
    pictures: Path | None = None,
    picture_labels: Path | None = None,
    validation_source: Path | None = None,
    validation_target: Path | None = None,
    validation_tsv: Path | None = None,
    validation_text: Path | None = None,
    validation_labelled: Path | None = None,
    validation_pictures: Path | None = None,
    validation_picture_labels: Path | None = None,
    columns: str | None = None,
    max_chars: int = MAX_CHARS,
    max_ratio: float = MAX_RATIO,
    as_json: Json = False,
) -> None:
    """Count what can be used, and why the rest cannot; measure it; find validation data in training data.

    clearhead data check --source a.de --target a.en

    clearhead data check --text a.txt

    clearhead data check --labelled reviews.tsv

    clearhead data check --pictures photos

    Parameters
    ----------
    source
        File with one source sentence a line, plain or gzip.
    target
        File with the translation of each line.
    tsv
        One tab-separated file of pairs instead of two.
    text
        Any text for a gpt, or one with a document a line for a bert.
    labelled
        Labelled texts for a classifier: a TSV, CSV or JSON lines file, or a folder of a folder for each label.
    pictures
        Pictures for a vit: a folder with a folder for each label, or an IDX file.
    picture_labels
        Their labels, if that is an IDX file.
    validation_source
        Source side of the validation data.
    validation_target
        Target side of the validation data.
    validation_tsv
        Validation data as one tab-separated file.
    validation_text
        A text to validate on.
    validation_labelled
        Labelled texts to validate on.
    validation_pictures
        Pictures to validate on.
    validation_picture_labels
        Their labels, if that is an IDX file.
    columns
        Columns of source and target, counted from 1 (1,2), or of text and label, by name or number (text,label).
    max_chars
        Leave out pairs with more characters than this on either side.
    max_ratio
        Leave out pairs in which one side has more than this many times the UTF-8 bytes of the other.
    """
    from clearhead.cli import checking

    pairs = {
        "source": source, "target": target, "tsv": tsv, "validation_source": validation_source,
        "validation_target": validation_target, "validation_tsv": validation_tsv,
    }  # fmt: skip
    limits = {"max_chars": _changed(max_chars, MAX_CHARS), "max_ratio": _changed(max_ratio, MAX_RATIO)}
    files: dict[str, dict[str, Any]] = {
        "pairs": {**pairs, **limits},
        "text": {"text": text, "validation_text": validation_text},
        "labelled": {"labelled": labelled, "validation_labelled": validation_labelled},
        "pictures": {
            "pictures": pictures, "validation_pictures": validation_pictures, "picture_labels": picture_labels,
            "validation_picture_labels": validation_picture_labels,
        },
    }  # fmt: skip
    wanted = [kind for kind, names in BEGINNINGS.items() if any(files[kind][name] is not None for name in names)]
    if len(wanted) != 1:
        raise UsageError(
            "name one kind of data to check: --source FILE --target FILE, --tsv FILE, --text FILE, --labelled FILE or "
            "--pictures FOLDER"
        )
    (kind,) = wanted
    useless = {name: value for other, given in files.items() if other != kind for name, value in given.items()}
    useless |= {} if tsv is not None or labelled is not None else {"columns": columns}
    mode = "--source with --target" if kind == "pairs" and tsv is None else f"--{BEGINNINGS[kind][-1]}"
    refuse(mode, {f"--{name.replace('_', '-')}": value for name, value in useless.items()})
    if kind == "pairs":
        checking.check_pairs(pairs, columns or "1,2", max_chars, max_ratio, as_json=as_json)
    elif kind == "text":
        checking.check_text(text, validation_text, as_json=as_json)
    elif kind == "labelled":
        checking.check_labelled(labelled, validation_labelled, columns or "text,label", as_json=as_json)
    else:
        labels = picture_labels, validation_picture_labels
        checking.check_pictures(pictures, validation_pictures, labels, as_json=as_json)


def _changed(value: float, default: float) -> float | None:
    """What somebody asked for, if it is anything else than would be done anyway."""
    return None if value == default else value


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


@app.command
def diversify(
    model: Path,
    /,
    *,
    out: Path,
    forward: Annotated[list[Path] | None, Parameter(negative=())] = None,
    backward: Annotated[list[Path] | None, Parameter(negative=())] = None,
    rare: Count = None,
    beam: Count = None,
    threads: Threads = None,
    workers: Workers = None,
) -> None:
    """Make more pairs of those a translator was trained on, by translators you have: for where data are few.

    clearhead data diversify runs/de-en --forward runs/de-en --backward runs/en-de --rare 5 --out more.tsv

    clearhead train translator --source a.de --target a.en --set data.extra=more.tsv --set init=runs/de-en

    What the models say in other words than the pairs do is written down, a pair a line, and pairs with a rare word in
    the place of another. Nothing is asked about pairs that are held out. After Ctrl-C the same command goes on.

    Parameters
    ----------
    model
        A model or run directory: its training data are meant.
    out
        The tab-separated file to write.
    forward
        A translator of the same direction, whose translations are new targets; again for more of them.
    backward
        A translator of the other direction, whose translations are new sources; with --forward, those that its first
        translator understands.
    rare
        Put each rare word into as many places where another stood.
    beam
        Hypotheses kept side by side, instead of what the translators are set to.
    """
    from clearhead.cli.diversifying import diversify as make

    make(model, out, forward or (), backward or (), rare, beam, threads, workers)


def readable_size(count: int) -> str:
    """Bytes as people say them.

    >>> readable_size(4_300_000), readable_size(900)
    ('4.3 MB', '900 bytes')
    """
    for size, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.1f} {name}"
    return f"{count} bytes"
