"""A size in, tokenised pairs out: those of Multi30k where it is here, else made ones of the same lengths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearhead.bench.sizes import Size
from clearhead.data.corpus import Sentences, TokenisedPairs
from clearhead.data.sets import is_here
from clearhead.run.preparing import examine, prepare
from clearhead.run.settings import TranslatorRun, find_recipe, read_config
from clearhead.text.specials import SPECIALS

MADE_PAIRS = 29_000
# Logarithms of Multi30k's lengths in 10,000 joint pieces: mean and spread of each side, and how far they go together.
MEAN, SPREAD, TOGETHER = np.array([2.608, 2.592]), np.array([0.348, 0.313]), 0.857


def fitting_corpus(size: Size) -> tuple[Size, TokenisedPairs, str]:
    """The size with the vocabularies as they really are, the pairs, and what they are."""
    if not is_here("multi30k"):
        return size, made_pairs(size), "made sentences with the lengths of Multi30k"
    config = read_config(find_recipe(size.recipe))
    assert isinstance(config, TranslatorRun)
    if size.joint:
        # What everybody is compared in does not change with the recipe.
        tokenizer = config.tokenizer.model_copy(update={"vocab_size": size.source_vocab_size})
        config = config.model_copy(update={"tokenizer": tokenizer})
    preparing = prepare(config, examine(config))
    while True:
        try:
            next(preparing)
        except StopIteration as done:
            tokenizers = done.value.tokenizers
            vocabularies = {
                "source_vocab_size": tokenizers.source.vocab_size,
                "target_vocab_size": tokenizers.target.vocab_size,
            }
            return replace(size, **vocabularies), done.value.training, "Multi30k, German to English"


def made_pairs(size: Size, count: int = MADE_PAIRS, seed: int = 1) -> TokenisedPairs:
    """Pairs of random tokens, the frequent ones more often, as long as Multi30k's."""
    random = np.random.default_rng(seed)
    drawn = random.multivariate_normal(MEAN, np.outer(SPREAD, SPREAD) * np.array([[1, TOGETHER], [TOGETHER, 1]]), count)
    lengths = np.exp(drawn).round().clip(1, 70).astype(np.int32)
    vocabularies = (size.source_vocab_size, size.target_vocab_size)
    source, target = (_made(random, lengths[:, side], vocabularies[side]) for side in (0, 1))
    return TokenisedPairs(source, target, np.arange(1, count + 1), 0)


def _made(random: np.random.Generator, lengths: NDArray[np.int32], vocab_size: int) -> Sentences:
    first = len(SPECIALS)
    # By Zipf's law the n-th most frequent word comes 1/n as often as the first.
    ids = first + (np.exp(random.random(int(lengths.sum())) * np.log(vocab_size - first)) - 1).astype(np.int64)
    return Sentences(ids, np.cumsum(lengths, dtype=np.int64) - lengths, lengths)


def store(pairs: TokenisedPairs, folder: Path) -> None:
    """Write pairs down for other processes."""
    for name, sentence, lengths in (
        ("source", pairs.source, pairs.source_lengths),
        ("target", pairs.target, pairs.target_lengths),
    ):
        np.save(folder / f"{name}.npy", np.concatenate([sentence(index) for index in range(len(pairs))]))
        np.save(folder / f"{name}_lengths.npy", lengths)


def restore(folder: Path) -> TokenisedPairs:
    """Read what `store` wrote."""
    sides = []
    for name in ("source", "target"):
        ids, lengths = (np.load(folder / f"{name}{part}.npy", allow_pickle=False) for part in ("", "_lengths"))
        sides.append(Sentences(ids, np.cumsum(lengths, dtype=np.int64) - lengths, lengths))
    return TokenisedPairs(sides[0], sides[1], np.arange(1, len(sides[0].lengths) + 1), 0)
