"""`clearhead translate`: texts in, one line out for each line in."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from clearhead.cli import show
from clearhead.cli.flags import ALL_TOKENS, Count, Device, Engine, Fewer, Model, Switch, Threads, Workers
from clearhead.cli.reading import answered, read_as_they_come
from clearhead.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from clearhead.engines.texts import TextTranslator, Translation
    from clearhead.generate.settings import GenerationConfig

SAMPLING = ("temperature", "top_k", "top_p", "seed")
# JSON may hold them, but much software takes them for the end of a line.
LINE_ENDS = {ord(sign): f"\\u{ord(sign):04x}" for sign in "\x85\u2028\u2029"}


def translate(
    *texts: str,
    model: Model = None,
    input: Annotated[Path | None, Parameter(name=["--input", "-i"])] = None,
    beam: Count = None,
    nbest: Annotated[Count, Parameter(show_default=False)] = None,
    by_sentence: Switch = False,
    scores: Switch = False,
    json_lines: Annotated[Switch, Parameter(name="--json")] = False,
    sample: Switch = False,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    length_penalty: float | None = None,
    patience: float | None = None,
    min_len: int | None = None,
    max_len: int | None = None,
    no_repeat_ngram: int | None = None,
    loop_guard: Annotated[bool | None, Parameter(negative="--no-loop-guard")] = None,
    fewer: Fewer = ALL_TOKENS,
    engine: Engine = None,
    device: Device = "auto",
    threads: Threads = None,
    workers: Workers = None,
) -> None:
    """Translate texts, a file, or standard input.

    clearhead translate "Ich habe einen Apfel gegessen."

    clearhead translate --model runs/de-en "dreiundzwanzig"

    clearhead translate --model runs/de-en < input.txt > output.txt

    Order and empty lines are kept; memory stays constant for input of any length; where the input pauses, what has come
    is translated. Without --model the built-in model is used, German and Chinese to English, or the one in
    CLEARHEAD_MODEL.

    Parameters
    ----------
    texts
        What to translate, after -- if it begins with a dash; without any, --input or standard input is read.
    input
        A file to translate, one text a line; plain or .gz.
    beam
        Hypotheses kept side by side; 1 is greedy.
    nbest
        Write this many lines for each text: its translations, best first, then empty lines if there are fewer.
    by_sentence
        Translate each text sentence by sentence: for several in a line, and for lines too long for the model.
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
    patience
        Search until this many times as many translations are finished as the beam is wide; 2 finds better ones.
    min_len
        Fewest tokens of a translation.
    max_len
        Most tokens of a translation.
    no_repeat_ngram
        No sequence of this many tokens may come twice.
    loop_guard
        Stop a phrase that repeats without end; on unless switched off.
    """
    if texts and input is not None:
        raise UsageError("give texts or --input, not both")
    wished: dict[str, Any] = {
        "beam_size": beam, "nbest": nbest, "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed,
        "length_penalty": length_penalty, "patience": patience, "min_len": min_len, "max_len": max_len,
        "no_repeat_ngram": no_repeat_ngram, "loop_guard": loop_guard,
    }  # fmt: skip
    options = {name: value for name, value in wished.items() if value is not None}
    _refuse_contradictions(options, sample=sample)
    if by_sentence and (scores or json_lines or options.get("nbest", 1) > 1):
        raise UsageError("--by-sentence gives one translation without a score: leave out --scores, --json and --nbest")
    if sample:
        options["strategy"] = "sample"
    from clearhead.run.engines import load_translator

    translator = load_translator(model, engine=engine, device=device, threads=threads, workers=workers)
    fewer.switch_on(translator)
    config = _configured(translator, options)
    is_typed = not texts and input is None and sys.stdin.isatty()
    if is_typed:
        show.note("type a text and press Enter; Ctrl-D ends")
    lines: Iterable[str | None] = _given(texts) if texts else read_as_they_come(input)
    used = 1 if is_typed else workers
    rows: Iterable[Iterable[str]]
    if by_sentence:
        rows = ([text] for _, text in answered(lines, lambda some: translator.lines_by_sentence(some, config, used)))
    else:
        scored = scores or json_lines
        found = answered(lines, lambda some: translator.stream(some, config, used, scored=scored))
        rows = (_shown(*one, nbest=config.nbest, scores=scores, as_json=json_lines) for one in found)
    is_watched = is_typed or sys.stdout.isatty()
    with nullcontext() if is_watched else show.counting("translating") as done:
        for number, row in enumerate(rows, start=1):
            for line in row:
                show.data(line)
            if is_watched:
                sys.stdout.flush()
            if done is not None:
                done(number)


def _refuse_contradictions(options: dict[str, Any], *, sample: bool) -> None:
    if not sample and any(name in options for name in SAMPLING):
        raise UsageError("--temperature, --top-k, --top-p and --seed are about sampling: add --sample")
    if sample and "beam_size" in options:
        raise UsageError("--sample draws and --beam searches: choose one of them")
    beam, nbest = options.get("beam_size"), options.get("nbest", 1)
    if beam is not None and nbest > beam:
        raise UsageError(f"--nbest {nbest} needs a beam at least as large: --beam {nbest}, not --beam {beam}")


def _configured(translator: TextTranslator, options: dict[str, Any]) -> GenerationConfig:
    """The model's own settings with the user's; a beam that was not asked for grows with the number of results."""
    if options.get("nbest", 1) > 1 and "strategy" not in options and "beam_size" not in options:
        options = {**options, "beam_size": max(options["nbest"], translator.generation.beam_size)}
    try:
        return translator.configured(**options)
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _shown(source: str, best: list[Translation], *, nbest: int, scores: bool, as_json: bool) -> Iterator[str]:
    if as_json:
        first, *others = [{"translation": one.text, "score": round(one.score, 6)} for one in best]
        row: dict[str, Any] = {"source": source, **first, "finished": best[0].finished}
        yield json.dumps({**row, "alternatives": others} if others else row, ensure_ascii=False).translate(LINE_ENDS)
        return
    for one in best:
        yield f"{one.score:.4f}\t{one.text}" if scores else one.text
    for _ in range(nbest - len(best)):
        yield "\t" if scores else ""


def _given(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield " ".join(text.split("\n"))
