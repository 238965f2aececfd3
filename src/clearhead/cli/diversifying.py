"""`clearhead data diversify`: what a model was trained on and translators come in, a file of more pairs goes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.cli import show
from clearhead.cli.flags import use_threads
from clearhead.errors import UsageError
from clearhead.storage import refuse_existing, write_text

if TYPE_CHECKING:
    from clearhead.run.diversifying import Pair
    from clearhead.run.remembering import Answers


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

    from clearhead.run.remembering import Answers

    begun = out.with_name(f"{out.name}.begun")
    with Answers(begun) as answers:
        try:
            made = _made(model, forward, backward, rare, _Translators(answers, beam, threads, workers))
        except KeyboardInterrupt:
            if len(answers):
                show.note(f"{len(answers):,} translations are kept in {begun}: the same command goes on from there")
            raise
        write_text(out, "".join(f"{source}\t{target}\n" for source, target in made if "\t" not in source + target))
        answers.forget()
    show.note(f"{len(made):,} pairs are in {out}; train with --set data.extra={out}")


@dataclass(frozen=True)
class _Translators:
    answers: Answers
    beam: int | None
    threads: int | None
    workers: int | None

    def translate(self, model: Path, texts: Sequence[str]) -> Iterator[Pair]:
        """Each text that the model can read with its translation, which may have been found before."""
        from clearhead.run.engines import load_translator
        from clearhead.run.remembering import identity
        from clearhead.run.scoring import translated

        translator = load_translator(model, threads=self.threads, workers=self.workers)
        name = identity(model, self.beam)
        known = self.answers.by(name)
        fitting = [text for text in texts if translator.count(text) <= translator.max_len]
        unknown = [text for text in fitting if text not in known]
        with show.counting(f"translating by {model}", len(unknown)) as progress:
            found = translated(translator, unknown, beam=self.beam, progress=progress, workers=self.workers)
            for text, best in zip(unknown, found, strict=True):
                self.answers.add(name, text, best)
        return ((text, known[text]) for text in fitting)


def _made(
    model: Path, forward: Sequence[Path], backward: Sequence[Path], rare: int | None, translators: _Translators
) -> Sequence[Pair]:
    from clearhead.run import diversifying

    with show.waiting("reading") as progress:
        pairs = diversifying.pairs_of(model, progress)
    show.note(f"{len(pairs):,} pairs to make others of")
    made: dict[Pair, None] = {}

    def take(found: Iterable[Pair], what: str) -> None:
        before = len(made)
        made.update(dict.fromkeys(found))
        show.note(f"{len(made) - before:,} pairs {what}")

    for by in forward:
        take(diversifying.forward(pairs, partial(translators.translate, by)), f"by {by}")
    for by in backward:
        found = list(diversifying.backward(pairs, partial(translators.translate, by)))
        if forward:
            found = list(diversifying.understood(found, partial(translators.translate, forward[0])))
        take(found, f"by {by}{f', understood by {forward[0]}' if forward else ''}")
    if rare is not None:
        with show.doing("putting rare words elsewhere"):
            take(diversifying.elsewhere(pairs, rare), "with a rare word in the place of another")
    return list(made)
