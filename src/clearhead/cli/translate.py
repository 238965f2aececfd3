"""`clearhead translate`: texts in, one line out for each line in."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from clearhead.errors import DataError, UsageError

if TYPE_CHECKING:
    from clearhead.run.using import Translation


def translate(
    *texts: str,
    model: Annotated[Path | None, Parameter(name=["--model", "-m"])] = None,
    input: Annotated[Path | None, Parameter(name=["--input", "-i"])] = None,
    beam: int | None = None,
    nbest: int = 1,
    scores: Annotated[bool, Parameter(negative=())] = False,
    json_lines: Annotated[bool, Parameter(name="--json", negative=())] = False,
    sample: Annotated[bool, Parameter(negative=())] = False,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    length_penalty: float | None = None,
    min_len: int | None = None,
    max_len: int | None = None,
    no_repeat_ngram: int | None = None,
    loop_guard: bool | None = None,
    device: str = "auto",
    threads: int | None = None,
) -> None:
    """Translate texts, a file, or standard input.

    clearhead translate --model runs/de-en "dreiundzwanzig"

    clearhead translate --model runs/de-en < input.txt > output.txt

    Order and empty lines are kept; memory stays constant for input of any length.

    Parameters
    ----------
    texts
        What to translate; without any, lines are read from --input or standard input.
    model
        A model or run directory.
    input
        A file to translate, one text a line; plain or .gz.
    beam
        Hypotheses kept side by side; 1 is greedy.
    nbest
        Translations for each text, best first.
    scores
        Put the score and a tab before each translation.
    json_lines
        One JSON object a line: source, translation, score, and alternatives.
    sample
        Draw words by chance instead of searching for the best.
    temperature
        Sampling: below 1 is more careful, above 1 more daring.
    top_k
        Sampling: draw from this many likeliest tokens only.
    top_p
        Sampling: draw from the likeliest tokens that together reach this probability.
    seed
        Sampling: the same seed gives the same result.
    length_penalty
        Above 1 favours long translations, below 1 short ones.
    min_len
        Fewest tokens of a translation.
    max_len
        Most tokens of a translation.
    no_repeat_ngram
        No sequence of this many tokens may come twice.
    loop_guard
        Stop a phrase that repeats without end (on unless switched off).
    device
        Where to compute: auto, cpu, cuda.
    threads
        CPU threads to use.
    """
    if model is None:
        raise UsageError("name a model: clearhead translate --model runs/NAME (clearhead train makes one)")
    if texts and input is not None:
        raise UsageError("give texts or --input, not both")
    import torch

    from clearhead.run.using import load

    if threads is not None:
        torch.set_num_threads(threads)
    wished: dict[str, Any] = {
        "beam_size": beam, "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed,
        "length_penalty": length_penalty, "min_len": min_len, "max_len": max_len,
        "no_repeat_ngram": no_repeat_ngram, "loop_guard": loop_guard,
    }  # fmt: skip
    options = {name: value for name, value in wished.items() if value is not None}
    if sample:
        options["strategy"] = "sample"
    elif any(name in options for name in ("temperature", "top_k", "top_p", "seed")):
        raise UsageError("temperature, top-k, top-p and seed are about sampling: add --sample")
    translator = load(model, device)
    config = translator.configured(nbest=nbest, **options)
    seen: list[str] = []
    for best in translator.stream(_remember(_lines(texts, input), seen), config):
        for line in _shown(seen.pop(0), best, scores=scores, as_json=json_lines):
            sys.stdout.write(line + "\n")
        if sys.stdout.isatty():
            sys.stdout.flush()


def _shown(source: str, best: list[Translation], *, scores: bool, as_json: bool) -> Iterator[str]:
    if as_json:
        first, *others = [{"translation": one.text, "score": round(one.score, 6)} for one in best]
        row: dict[str, Any] = {"source": source, **first, "finished": best[0].finished}
        yield json.dumps({**row, "alternatives": others} if others else row, ensure_ascii=False)
        return
    for one in best:
        yield f"{one.score:.4f}\t{one.text}" if scores else one.text


def _remember(lines: Iterator[str], seen: list[str]) -> Iterator[str]:
    for line in lines:
        seen.append(line)
        yield line


def _lines(texts: tuple[str, ...], path: Path | None) -> Iterator[str]:
    """One text per line, split on line feeds only, so that output and input stay aligned."""
    if texts:
        for text in texts:
            yield " ".join(text.split("\n"))
        return
    if path is not None:
        from clearhead.data.lines import TextFile

        for number, line in enumerate(TextFile(path).lines(), start=1):
            if not isinstance(line, str):
                raise DataError(f"{path} line {number:,}: {line.name.lower().replace('_', ' ')}")
            yield line
        return
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            yield raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError:
            raise DataError(f"standard input line {number:,} is not UTF-8") from None
