"""`clearhead fill`: texts with gaps in, what may stand in the gaps out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from clearhead.cli import show
from clearhead.cli.classify import LINE_ENDS
from clearhead.cli.flags import ALL_TOKENS, Device, Engine, Fewer, Json, Model, Switch, Threads
from clearhead.cli.reading import answered, read_lines
from clearhead.errors import UsageError

if TYPE_CHECKING:
    from clearhead.engines.filling import Filled


def fill(
    *texts: str,
    model: Model = None,
    input: Annotated[Path | None, Parameter(name=["--input", "-i"])] = None,
    top: Annotated[int, Parameter(validator=Number(gte=1))] = 5,
    best: Switch = False,
    as_json: Json = False,
    fewer: Fewer = ALL_TOKENS,
    engine: Engine = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Say what may stand in the gaps of texts, which are written [MASK].

    clearhead fill --model runs/imdb-bert "The film was [MASK]."

    clearhead fill --model runs/imdb-bert --best < gaps.txt > filled.txt

    A line for each candidate, the likeliest first: its probability, the token, the text it makes.

    Parameters
    ----------
    texts
        Texts with gaps, after -- if they begin with a dash; without any, --input or standard input is read.
    input
        A file of texts, one a line; plain or .gz.
    top
        How many candidates to show for each gap.
    best
        Write each text with its gaps filled, one line out for each line in, and nothing else.
    """
    if model is None:
        raise UsageError("say which model is to fill: --model runs/NAME")
    if texts and input is not None:
        raise UsageError("give texts or --input, not both")
    from clearhead.run.engines import load_filler

    loaded = load_filler(model, engine=engine, device=device, threads=threads)
    fewer.switch_on(loaded)
    lines = (" ".join(text.split("\n")) for text in texts) if texts else read_lines(input)
    for text, found in answered(lines, lambda some: loaded.stream((line for line in some if line is not None), top)):
        for line in _shown(text, found, best, as_json):
            show.data(line)


def _shown(text: str, found: Filled, best: bool, as_json: bool) -> Iterator[str]:
    if as_json:
        gaps = [
            [{"token": one.token, "probability": round(one.probability, 6), "text": one.text} for one in gap]
            for gap in found.gaps
        ]
        yield json.dumps({"text": text, "filled": found.text, "gaps": gaps}, ensure_ascii=False).translate(LINE_ENDS)
    elif best or not found.gaps:
        yield _line(found.text)
    else:
        for one in (one for gap in found.gaps for one in gap):
            yield f"{one.probability:.4f}\t{_line(one.token).strip() or repr(one.token)}\t{_line(one.text)}"


def _line(text: str) -> str:
    """One line, also where the end of a line was filled in."""
    return " ".join(text.splitlines())
