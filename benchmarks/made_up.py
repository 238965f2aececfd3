"""A number of pairs in, two aligned text files out: sentences of made-up words, the same for the same seed.

The frequent words follow Zipf's law and are short, the rare ones fall off faster, as in languages; a translation has
a word of its own for each word and swaps some neighbours, so there is something to learn. One pair in a hundred came
before.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WORDS = 400_000
COMMON, RARITY = 6_000, 1.7
TABLE = 1 << 25
CHUNK = 50_000
SWAPPED = 0.15
REPEATED = 0.01
SOUNDS = {
    "source": (
        ("b", "d", "f", "g", "h", "k", "l", "m", "n", "r", "s", "sch", "st", "t", "w", "z"),
        ("a", "e", "i", "o", "u", "ä", "ö", "ü", "ei", "au"),
        ("", "n", "r", "ch"),
    ),
    "target": (
        ("b", "c", "d", "f", "g", "h", "j", "l", "m", "n", "p", "r", "s", "sh", "t", "th", "v", "w"),
        ("a", "e", "i", "o", "u", "ea", "oo", "y"),
        ("", "n", "s", "ck"),
    ),
}


def make_corpus(folder: Path, pairs: int, seed: int = 1) -> tuple[Path, Path]:
    """Write `pairs` lines to `corpus.source` and `corpus.target`."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    ranks = _zipf_table()
    forms = [_forms(_words(SOUNDS[side], np.random.default_rng(number))) for number, side in enumerate(SOUNDS)]
    paths = folder / "corpus.source", folder / "corpus.target"
    with paths[0].open("w", encoding="utf-8") as source, paths[1].open("w", encoding="utf-8") as target:
        for start in range(0, pairs, CHUNK):
            count = min(CHUNK, pairs - start)
            repeated = random.random(count) < REPEATED
            lengths = np.clip(random.lognormal(2.7, 0.55, count), 2, 90).astype(np.int64)
            words = ranks[random.integers(0, TABLE, int(lengths.sum()))]
            ends = np.cumsum(lengths)
            swapped = _swap(words, ends, random)
            for file, spoken, table in ((source, words, forms[0]), (target, swapped, forms[1])):
                lines = "".join(itemgetter(*_in_form(spoken, ends).tolist())(table)).split("\n")[:-1]
                file.write("".join(_lines(lines, repeated)))
    return paths


def _lines(lines: list[str], repeated: NDArray[np.bool_]) -> list[str]:
    """Lines with their ends; some of them are what stood a few lines earlier."""
    for place in np.flatnonzero(repeated).tolist():
        lines[place] = lines[max(0, place - 7)]
    return [f"{line}\n" for line in lines]


def _zipf_table() -> NDArray[np.int32]:
    """Ranks, each as often as Zipf's law has it, so that a draw is one look-up."""
    ranks = np.arange(1, WORDS + 1)
    weights = np.where(ranks <= COMMON, 1.0 / ranks, (COMMON / ranks) ** RARITY / COMMON)
    shares = np.cumsum(weights / weights.sum())
    return np.searchsorted(shares, (np.arange(TABLE) + 0.5) / TABLE).astype(np.int32)


def _words(sounds: Sequence[Sequence[str]], random: np.random.Generator) -> list[str]:
    """As many different words, the shorter the more frequent: one syllable, then two, then three."""
    syllables = ["".join(sound) for sound in itertools.product(*sounds)]
    random.shuffle(syllables)
    words: dict[str, None] = {}
    for size in itertools.count(1):
        # Fewer of the short words than there could be, as in a language.
        used = syllables if size == 3 else syllables[: len(syllables) // 2]
        for parts in itertools.product(used, repeat=size):
            words["".join(parts)] = None
            if len(words) == WORDS:
                return list(words)
    raise AssertionError


def _forms(words: list[str]) -> list[str]:
    """Every word at the beginning, in the middle and at the end of a sentence."""
    return [*(f"{word.capitalize()} " for word in words), *(f"{word} " for word in words), *(f"{w}.\n" for w in words)]


def _in_form(words: NDArray[np.int32], ends: NDArray[np.int64]) -> NDArray[np.int32]:
    placed = words + np.int32(WORDS)
    placed[ends[:-1]] -= np.int32(WORDS)
    placed[0] -= np.int32(WORDS)
    placed[ends - 1] += np.int32(WORDS)
    return placed


def _swap(words: NDArray[np.int32], ends: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int32]:
    """Some words change places with the next one of their sentence."""
    places = np.flatnonzero(random.random(len(words)) < SWAPPED)
    places = places[~np.isin(places, ends - 1)]
    places = places[np.diff(places, append=len(words) + 2) > 1]
    swapped = words.copy()
    swapped[places], swapped[places + 1] = words[places + 1], words[places]
    return swapped
