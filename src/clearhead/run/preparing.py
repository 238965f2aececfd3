"""Settings in, checked and tokenised training and validation pairs out."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data.corpus import TokenisedPairs, cache_key, cache_root, corpus_key, open_or_tokenise
from clearhead.data.doctor import Checkup, check, hold_out, kept_pairs
from clearhead.data.sources import PairSource, open_source
from clearhead.errors import DataError
from clearhead.run.settings import RunConfig
from clearhead.text.tokenizer import TokenizerPair
from clearhead.training.events import Noted


@dataclass(frozen=True, eq=False)
class Examined:
    """What the doctor found, and which pairs are set aside."""

    source: PairSource
    validation_source: PairSource | None
    checkup: Checkup
    held_out: NDArray[np.bool_]

    def training_texts(self, side: int) -> Iterator[str]:
        """One side of the pairs that are trained on."""
        for pair in kept_pairs(self.source, self.checkup):
            if not self.held_out[pair[0] - 1]:
                yield (pair[1], pair[2])[side]


class Ticket(NamedTuple):
    """Where prepared data lie in the cache: all that another process needs to open them."""

    corpus: str
    validation: str
    held_out: list[int]
    """Lines of the corpus that are validated on; none where there are validation data of their own."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything of the data that training needs."""

    tokenizers: TokenizerPair
    training: TokenisedPairs
    validation: TokenisedPairs
    ticket: Ticket


def examine(config: RunConfig) -> Examined:
    """Read all data once, judge every pair, and set validation pairs aside where none are given."""
    source = open_source(config.data, "train")
    validation_source = open_source(config.data, "validation")
    assert source is not None
    checkup = check(source, config.data.limits, validation_source)
    held_out = np.zeros(len(checkup.reasons), dtype=bool)
    if validation_source is None:
        held_out = hold_out(checkup, config.data.hold_out, config.train.seed, config.data.hold_out_by)
    return Examined(source, validation_source, checkup, held_out)


def prepare(
    config: RunConfig, examined: Examined, tokenizers: TokenizerPair | None = None
) -> Generator[Noted, None, Prepared]:
    """Train the tokenizers if there are none yet, and tokenise; what a person should know is yielded."""
    for line in examined.checkup.report.lines():
        yield Noted(line)
    if tokenizers is None:
        tokenizers = TokenizerPair.train(config.tokenizer, examined.training_texts(0), examined.training_texts(1))
        size = f"{tokenizers.source.vocab_size:,}"
        sizes = size if tokenizers.joint else f"{size} and {tokenizers.target.vocab_size:,}"
        yield Noted(f"tokenizer: {config.tokenizer.kind}, {sizes} entries")
    everything, corpus_at = _tokenised(config, examined.source, examined.checkup, tokenizers)
    validation_at = corpus_at
    held = examined.held_out[everything.line_numbers - 1]
    training = everything.subset(np.flatnonzero(~held))
    if examined.validation_source is None:
        validation = everything.subset(np.flatnonzero(held))
    else:
        assert examined.checkup.validation is not None
        validation, validation_at = _tokenised(
            config, examined.validation_source, examined.checkup.validation, tokenizers
        )
    if everything.dropped_too_long:
        yield Noted(f"dropped {everything.dropped_too_long:,} pairs of more than {config.model.max_len} tokens")
    validated = examined.validation_source or examined.source
    for pairs, name, purpose in ((training, examined.source.name, "train"), (validation, validated.name, "validate")):
        if not len(pairs):
            raise DataError(f"{name}: no pair is left to {purpose} on")
    yield Noted(f"{len(training):,} pairs to train on, {len(validation):,} to validate on")
    ticket = Ticket(corpus_at, validation_at, (np.flatnonzero(examined.held_out) + 1).tolist())
    return Prepared(tokenizers, training, validation, ticket)


def open_prepared(tokenizers: TokenizerPair, ticket: Ticket) -> Prepared:
    """Open what another process on this host has prepared."""
    everything = TokenisedPairs.open(cache_root() / ticket.corpus)
    held = np.isin(everything.line_numbers, ticket.held_out)
    training = everything.subset(np.flatnonzero(~held))
    if ticket.held_out:
        validation = everything.subset(np.flatnonzero(held))
    else:
        validation = TokenisedPairs.open(cache_root() / ticket.validation)
    return Prepared(tokenizers, training, validation, ticket)


def _tokenised(
    config: RunConfig, source: PairSource, checkup: Checkup, tokenizers: TokenizerPair
) -> tuple[TokenisedPairs, str]:
    """The pairs, and their name in the cache."""
    content, max_len = cache_key(source.fingerprint(), config.data.limits.model_dump_json()), config.model.max_len
    pairs = open_or_tokenise(content, lambda: kept_pairs(source, checkup), tokenizers, max_len=max_len)
    return pairs, corpus_key(content, tokenizers, max_len)
