"""`clearhead data diversify`: what a model was trained on and translators come in, a file of more pairs goes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from clearhead.cli import show
from clearhead.cli.flags import use_threads
from clearhead.errors import UsageError
from clearhead.storage import refuse_existing, write_text


def diversify(
    model: Path,
    out: Path,
    forward: Sequence[Path],
    backward: Sequence[Path],
    rare: int | None,
    beam: int | None,
    threads: int | None,
    workers: int | None,
) -> None:
    """Make the pairs, write each once, and say how many came from where."""
    if not (forward or backward or rare):
        raise UsageError("say what makes pairs: --forward MODEL, --backward MODEL or --rare N")
    refuse_existing(out)
    use_threads(threads)

    from clearhead.run import diversifying
    from clearhead.run.engines import load_translator
    from clearhead.run.scoring import translated

    def translate(by: Path, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
        translator = load_translator(by, threads=threads, workers=workers)
        fitting = [text for text in texts if translator.count(text) <= translator.max_len]
        with show.counting(f"translating by {by}", len(fitting)) as progress:
            found = translated(translator, fitting, beam=beam, progress=progress, workers=workers)
        return zip(fitting, found, strict=True)

    with show.waiting("reading") as progress:
        pairs = diversifying.pairs_of(model, progress)
    show.note(f"{len(pairs):,} pairs to make others of")
    made: dict[tuple[str, str], None] = {}

    def take(found: Iterable[tuple[str, str]], what: str) -> None:
        before = len(made)
        made.update(dict.fromkeys(found))
        show.note(f"{len(made) - before:,} pairs {what}")

    for by in forward:
        take(diversifying.forward(pairs, partial(translate, by)), f"by {by}")
    for by in backward:
        found = list(diversifying.backward(pairs, partial(translate, by)))
        if forward:
            found = list(diversifying.understood(found, partial(translate, forward[0])))
        take(found, f"by {by}{f', understood by {forward[0]}' if forward else ''}")
    if rare is not None:
        with show.doing("putting rare words elsewhere"):
            take(diversifying.elsewhere(pairs, rare), "with a rare word in the place of another")
    write_text(out, "".join(f"{source}\t{target}\n" for source, target in made if "\t" not in source + target))
    show.note(f"{len(made):,} pairs are in {out}; train with --set data.extra={out}")
