"""Training pairs and translators in, more pairs that say the same in other words out: for where data are few.

A translator of the same direction says sources in words of its own, one of the other direction targets (data
diversification, Nguyen et al. 2020), and rare words are put into places where others stood. The models may have been
trained on these very pairs: they know much of them by heart, but not all.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from clearhead.data.gist import gist
from clearhead.data.lexicon import Lexicon, is_spaced
from clearhead.errors import MissingInputError
from clearhead.evaluate import likeness
from clearhead.run.preparing import examine_data
from clearhead.run.scoring import trained_on_by
from clearhead.training.events import Reading

Pair = tuple[str, str]
Progress = Callable[[Reading], None]
Translate = Callable[[Sequence[str]], Iterable[Pair]]
"""Texts in, those that a model can read out, each with its translation."""

LIKE = 50.0
"""How like a known translation another one must be: those that are less like it are often wrong."""

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def pairs_of(model: Path, progress: Progress | None = None) -> list[Pair]:
    """What a translator was trained on, unaltered, and nothing of what was held out."""
    trained_on = trained_on_by(model)
    if trained_on is None:
        raise MissingInputError(f"{model} does not say what it was trained on: it has no training_config.toml")
    return list(examine_data(trained_on.data, trained_on.seed, progress).training_pairs())


def forward(pairs: Iterable[Pair], translate: Translate) -> Iterator[Pair]:
    """Each source with a translation that no pair has, but that is like one of those it has."""
    return _in_other_words(pairs, translate, LIKE)


def backward(pairs: Iterable[Pair], translate: Translate) -> Iterator[Pair]:
    """Each target with a source that no pair has, from a model of the other direction, like another or not."""
    turned = ((target, source) for source, target in pairs)
    return ((source, target) for target, source in _in_other_words(turned, translate, 0.0))


def understood(made: Sequence[Pair], translate: Translate) -> Iterator[Pair]:
    """Pairs from `backward` whose sources a model of the same direction translates into something like their targets.

    A model that does not know a word says another one, which would be learnt as its translation.
    """
    targets: dict[str, list[str]] = defaultdict(list)
    for source, target in made:
        targets[source].append(target)
    for source, found in translate(list(targets)):
        yield from ((source, target) for target in targets[source] if likeness(found, [target]) >= LIKE)


def elsewhere(pairs: Sequence[Pair], most: int) -> Iterator[Pair]:
    """Pairs in which a rare word stands for another, each such word `most` times or less."""
    return Lexicon.learn(pairs).spread(pairs, most, seed=1)


def _in_other_words(pairs: Iterable[Pair], translate: Translate, like: float) -> Iterator[Pair]:
    """Each text with a translation that it has nowhere.

    A word that nobody has written is hardly one: such translations are left out.
    """
    known: dict[str, list[str]] = defaultdict(list)
    words: set[str] = set()
    for text, other in pairs:
        known[text].append(other)
        words.update(_words(other))
    for text, made in translate(list(known)):
        is_new = gist(made) not in map(gist, known[text])
        if is_new and words >= _words(made) - _words(text) and (not like or likeness(made, known[text]) >= like):
            yield text, made


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)} if is_spaced(text) else set()
