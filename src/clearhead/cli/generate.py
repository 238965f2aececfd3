"""`clearhead generate`: a beginning in, what comes after it out."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from clearhead.cli import show
from clearhead.cli.flags import Count, Device, Engine, Model, Switch, Threads
from clearhead.cli.reading import read_lines, read_text
from clearhead.cli.translate import LINE_ENDS
from clearhead.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from clearhead.engines.writing import Continuation, TextWriter
    from clearhead.generate.settings import GenerationConfig

SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed")
BETWEEN = "-" * 15 + "\n"
"""What stands between several texts for people; programs use --json."""


def generate(
    *prompts: str,
    model: Model = None,
    input: Annotated[Path | None, Parameter(name=["--input", "-i"])] = None,
    lines: Switch = False,
    samples: Count = None,
    length: Count = None,
    stream: Switch = False,
    only_new: Switch = False,
    json_lines: Annotated[Switch, Parameter(name="--json")] = False,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    stop: Annotated[list[str] | None, Parameter(negative=())] = None,
    seed: int | None = None,
    engine: Engine = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Go on with a text: prompts, a file, or standard input.

    clearhead generate --model runs/shakespeare "ROMEO:" --length 500

    clearhead generate --model runs/shakespeare --samples 3 --temperature 0.8 --top-k 20 "KING"

    clearhead generate --model runs/shakespeare --input scene.txt --stop "JULIET:" --only-new

    Without a prompt a new line begins. A text of any length may be given and asked for: the model sees as much of its
    end as fits into max_len.

    Parameters
    ----------
    prompts
        What to go on with, after -- if it begins with a dash; without any, --input or standard input is read.
    input
        A file to go on with, plain or .gz: all of it is one prompt.
    lines
        Each line of the input is a prompt by itself.
    samples
        Write so many different texts for each prompt, likeliest first.
    length
        Add at most so many tokens; if not given, as many as the model sees at once.
    stream
        Write the text while it comes into being, as a terminal is shown it anyway; for one prompt and one sample.
    only_new
        Leave the prompt out of what is written.
    json_lines
        One JSON object a line: prompt, text (what was added), log_prob, tokens, stopped.
    temperature
        Below 1 is more careful, above 1 more daring; 0 takes the likeliest token each time.
    top_k
        Draw from this many likeliest tokens only.
    top_p
        Draw from the likeliest tokens that together reach this probability.
    min_p
        Draw from tokens at least this likely relative to the likeliest.
    stop
        End before this text would be said; may be repeated. In a shell a line end is $'\\n'.
    seed
        The same seed gives the same text.
    """
    if prompts and (input is not None or lines):
        raise UsageError("give prompts, or --input and --lines, not both")
    wished: dict[str, Any] = {
        "nbest": samples, "length": length, "temperature": temperature, "top_k": top_k, "top_p": top_p,
        "min_p": min_p, "stop": stop, "seed": seed,
    }  # fmt: skip
    options = {name: value for name, value in wished.items() if value is not None}
    if stream and (json_lines or (samples or 1) > 1 or len(prompts) > 1 or lines):
        raise UsageError("--stream writes one text while it comes into being: leave out --json, --samples and --lines")
    if model is None and not os.environ.get("CLEARHEAD_MODEL"):
        raise UsageError("say which model writes: --model runs/NAME (clearhead train gpt --text FILE makes one)")
    from clearhead.run.engines import load_writer

    loaded = load_writer(model, engine=engine, device=device, threads=threads)
    if _asks_to_draw(options, loaded.generation.strategy):
        options["strategy"] = "sample"
    config = _configured(loaded, options)
    given = list(prompts) or _read(input, lines=lines)
    _say_what_is_seen(loaded, given)
    is_one = len(given) == 1 and config.nbest == 1 and config.strategy != "beam" and not json_lines
    if is_one and (stream or sys.stdout.isatty()):
        _write_as_it_comes(loaded, given[0], options, only_new=only_new)
        return
    with show.waiting("writing"):
        found = loaded.continuations(given, config)
    _write(given, found, only_new=only_new, as_json=json_lines)


def _asks_to_draw(options: dict[str, Any], strategy: str) -> bool:
    """Whether words are to be drawn, whatever the model does by itself: one that is greedy has a single text to say."""
    return any(name in options for name in SAMPLING) or (strategy == "greedy" and options.get("nbest", 1) > 1)


def _configured(loaded: TextWriter, options: dict[str, Any]) -> GenerationConfig:
    try:
        return loaded.configured(**options)
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _read(input: Path | None, *, lines: bool) -> list[str]:
    """The prompts of a file or of standard input; a person who gave none is not waited for."""
    if input is None and sys.stdin.isatty():
        return [""]
    return list(read_lines(input)) if lines else [read_text(input)]


def _say_what_is_seen(loaded: TextWriter, prompts: Sequence[str]) -> None:
    longest = max((len(loaded.encode(prompt)) for prompt in prompts), default=0)
    unseen = loaded.first_seen(longest)
    if unseen:
        show.note(f"a prompt has {longest:,} tokens: the model sees the last {longest - unseen:,} of them")


def _write_as_it_comes(loaded: TextWriter, prompt: str, options: dict[str, Any], *, only_new: bool) -> None:
    last = ""
    for piece in _chained([] if only_new else [prompt], loaded.stream(prompt, **options)):
        sys.stdout.write(_shown(piece))
        sys.stdout.flush()
        last = piece or last
    if not last.endswith("\n"):
        sys.stdout.write("\n")


def _chained(first: Iterable[str], rest: Iterable[str]) -> Iterable[str]:
    yield from first
    yield from rest


def _write(prompts: Sequence[str], found: Sequence[Sequence[Continuation]], *, only_new: bool, as_json: bool) -> None:
    texts = [(prompt, one) for prompt, some in zip(prompts, found, strict=True) for one in some]
    for place, (prompt, one) in enumerate(texts):
        if as_json:
            row = {
                "prompt": prompt,
                "text": one.text,
                "log_prob": round(one.log_prob, 6),
                "tokens": one.tokens,
                "stopped": one.is_stopped,
            }
            sys.stdout.write(json.dumps(row, ensure_ascii=False).translate(LINE_ENDS) + "\n")
            continue
        text = one.text if only_new else prompt + one.text
        sys.stdout.write((BETWEEN if place else "") + _shown(text) + ("" if text.endswith("\n") else "\n"))


def _shown(text: str) -> str:
    """Data on stdout as it is; only a terminal is spared control characters."""
    if not sys.stdout.isatty():
        return text
    return "\n".join(show.printable(line) for line in text.split("\n"))
