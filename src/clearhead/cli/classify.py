"""`clearhead classify`: texts or pictures in, one line out for each: its label."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from clearhead.cli import show
from clearhead.cli.flags import ALL_TOKENS, Device, Engine, Fewer, Json, Model, Switch, Threads
from clearhead.cli.reading import answered, read_as_they_come
from clearhead.errors import UsageError

if TYPE_CHECKING:
    from clearhead.engines.classifying import Classified, TextClassifier
    from clearhead.engines.seeing import PictureClassifier, Seen

# JSON may hold them, but much software takes them for the end of a line.
LINE_ENDS = {ord(sign): f"\\u{ord(sign):04x}" for sign in "\x85\u2028\u2029"}


def classify(
    *inputs: str,
    model: Model = None,
    input: Annotated[Path | None, Parameter(name=["--input", "-i"])] = None,
    probabilities: Switch = False,
    as_json: Json = False,
    fewer: Fewer = ALL_TOKENS,
    engine: Engine = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Label texts, a file, standard input, or pictures.

    clearhead classify --model runs/imdb "A film to remember."

    clearhead classify --model runs/imdb < reviews.txt > labels.txt

    clearhead classify --model runs/fashion-vit picture.png

    Order and empty lines are kept; memory stays constant for input of any length.

    Parameters
    ----------
    inputs
        What to label, texts or picture files, after -- if it begins with a dash; without any, standard input is read.
    input
        A file to label, one text, or name of a picture, a line; plain or .gz.
    probabilities
        Behind the label, after tabs, every label with its probability, likeliest first.
    """
    if model is None:
        raise UsageError("say which model is to classify: --model runs/NAME")
    if inputs and input is not None:
        raise UsageError("give texts or --input, not both")
    from clearhead.engines.seeing import PictureClassifier
    from clearhead.run.engines import load_classifier

    loaded = load_classifier(model, engine=engine, device=device, threads=threads)
    fewer.switch_on(loaded)
    if isinstance(loaded, PictureClassifier):
        _write_pictures(loaded, iter(inputs) if inputs else read_as_they_come(input), probabilities, as_json)
        return
    given = (" ".join(text.split("\n")) for text in inputs)
    _write(loaded, given if inputs else read_as_they_come(input), probabilities, as_json)


def _write(loaded: TextClassifier, lines: Iterable[str | None], probabilities: bool, as_json: bool) -> None:
    count = long = 0
    for text, found in answered(lines, loaded.stream):
        count += 1
        long += found.tokens > loaded.long_texts.room
        show.data(_line(text, found, probabilities, as_json))
    if long:
        room, meaning = loaded.long_texts.room, loaded.long_texts.meaning
        show.note(f"{long:,} of {count:,} texts have more than {room} tokens: {meaning}")


def _line(text: str, found: Classified, probabilities: bool, as_json: bool) -> str:
    likeliest = sorted(found.probabilities.items(), key=lambda entry: -entry[1])
    if as_json:
        shares = {label: round(share, 6) for label, share in likeliest}
        row = {
            "text": text,
            "label": found.label or None,
            "probability": round(found.probability, 6),
            "probabilities": shares,
            "tokens": found.tokens,
            "read": found.read,
        }
        return json.dumps(row, ensure_ascii=False).translate(LINE_ENDS)
    return _with_shares(found.label, likeliest) if probabilities and likeliest else found.label


def _with_shares(label: str, likeliest: Iterable[tuple[str, float]]) -> str:
    return "\t".join([label, *(f"{name} {share:.4f}" for name, share in likeliest)])


def _write_pictures(loaded: PictureClassifier, names: Iterable[str | None], probabilities: bool, as_json: bool) -> None:
    resized: list[tuple[str, Seen]] = []
    count = 0
    for name, seen in answered(names, loaded.stream):
        count += 1
        if seen.size != loaded.form[:2]:
            resized.append((name, seen))
        show.data(_picture_line(name, seen, probabilities, as_json))
        if sys.stdout.isatty():
            sys.stdout.flush()
    if resized:
        name, seen = resized[0]
        height, width = loaded.form[:2]
        first = f"first {name}, which is {seen.size[0]} x {seen.size[1]}"
        show.note(f"resized {len(resized):,} of {count:,} pictures to {height} x {width}, {first}")


def _picture_line(name: str, seen: Seen, probabilities: bool, as_json: bool) -> str:
    likeliest = sorted(seen.probabilities.items(), key=lambda entry: -entry[1])
    if as_json:
        shares = {label: round(share, 6) for label, share in likeliest}
        row = {
            "picture": name,
            "label": seen.label or None,
            "probability": round(seen.probability, 6),
            "probabilities": shares,
        }
        return json.dumps(row, ensure_ascii=False).translate(LINE_ENDS)
    return _with_shares(seen.label, likeliest) if probabilities and likeliest else seen.label
