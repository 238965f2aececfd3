"""Settings in, checked and tokenised training and validation pairs out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearhead.data.corpus import TokenisedPairs, cache_key, cache_root, opening_or_tokenising
from clearhead.data.crew import num_workers
from clearhead.data.doctor import Checkup, check, hold_out, kept_pairs
from clearhead.data.sources import PairSource, open_source
from clearhead.errors import DataError
from clearhead.run.settings import RunConfig
from clearhead.text.tokenizer import TokenizerPair
from clearhead.training.events import Noted, Pace, Reading
from clearhead.training.logbook import clock, short


@dataclass(frozen=True, eq=False)
class Examined:
    """What the doctor found, and which pairs are set aside."""

    source: PairSource
    validation_source: PairSource | None
    checkup: Checkup
    held_out: NDArray[np.bool_]

    @property
    def num_training_pairs(self) -> int:
        """How many pairs are kept and not held out."""
        return self.checkup.report.kept - int(np.count_nonzero(self.held_out))

    def training_texts(self, side: int, sample: int | None = None) -> Iterator[str]:
        """One side of the pairs that are trained on: all, or at most `sample` of them, evenly spaced."""
        held_out = self.held_out.tobytes()
        total = self.num_training_pairs
        wanted = total if sample is None else min(sample, total)
        trained = (pair for pair in kept_pairs(self.source, self.checkup) if not held_out[pair[0] - 1])
        for place, pair in enumerate(trained):
            if (place + 1) * wanted // total > place * wanted // total:
                yield pair[2] if side else pair[1]


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything of the data that training needs."""

    tokenizers: TokenizerPair
    training: TokenisedPairs
    validation: TokenisedPairs


def examine(config: RunConfig, progress: Callable[[Reading], None] | None = None) -> Examined:
    """Read all data once, judge every pair, and set validation pairs aside where none are given.

    `progress` hears from time to time how far it has come.
    """
    source = open_source(config.data, "train")
    validation_source = open_source(config.data, "validation")
    assert source is not None
    pace = Pace("checking")

    def tell(pairs: int) -> None:
        reading = pace.at(pairs, source.share_read())
        if reading is not None and progress is not None:
            progress(reading)

    checkup = check(source, config.data.limits, validation_source, tell, cache_root())
    held_out = np.zeros(len(checkup.reasons), dtype=bool)
    if validation_source is None:
        held_out = hold_out(checkup, config.data.hold_out, config.train.seed, config.data.hold_out_by)
    return Examined(source, validation_source, checkup, held_out)


def prepare(
    config: RunConfig, examined: Examined, tokenizers: TokenizerPair | None = None
) -> Generator[Noted | Reading, None, Prepared]:
    """Train the tokenizers if there are none yet, and tokenise; what a person should know is yielded."""
    for line in examined.checkup.report.lines():
        yield Noted(line)
    if tokenizers is None:
        sample, total = config.tokenizer.sample, examined.num_training_pairs
        if sample < total:
            yield Noted(f"the tokenizer learns from a sample of {sample:,} of {total:,} pairs (tokenizer.sample)")
        texts = examined.training_texts(0, sample), examined.training_texts(1, sample)
        tokenizers = TokenizerPair.train(config.tokenizer, *texts)
        size = f"{tokenizers.source.vocab_size:,}"
        sizes = size if tokenizers.joint else f"{size} and {tokenizers.target.vocab_size:,}"
        yield Noted(f"tokenizer: {config.tokenizer.kind}, {sizes} entries")
    everything = yield from _tokenised(config, examined.source, examined.checkup, tokenizers)
    held = examined.held_out[everything.line_numbers - 1]
    training = everything.subset(np.flatnonzero(~held))
    if examined.validation_source is None:
        validation = everything.subset(np.flatnonzero(held))
    else:
        assert examined.checkup.validation is not None
        validation = yield from _tokenised(config, examined.validation_source, examined.checkup.validation, tokenizers)
    if everything.dropped_too_long:
        yield Noted(f"dropped {everything.dropped_too_long:,} pairs of more than {config.model.max_len} tokens")
    validated = examined.validation_source or examined.source
    for pairs, name, purpose in ((training, examined.source.name, "train"), (validation, validated.name, "validate")):
        if not len(pairs):
            raise DataError(f"{name}: no pair is left to {purpose} on")
    yield Noted(f"{len(training):,} pairs to train on, {len(validation):,} to validate on")
    return Prepared(tokenizers, training, validation)


def _tokenised(
    config: RunConfig, source: PairSource, checkup: Checkup, tokenizers: TokenizerPair
) -> Generator[Noted | Reading, None, TokenisedPairs]:
    content = cache_key(source.fingerprint(), config.data.limits.model_dump_json())
    pairs = checkup.report.kept
    workers = num_workers(pairs, config.data.workers)
    pace = Pace("tokenising", pairs)
    tokenised = yield from pace.tell(
        opening_or_tokenising(
            content, lambda: kept_pairs(source, checkup), tokenizers, max_len=config.model.max_len, workers=workers
        )
    )
    if pace.is_slow:
        rate = f"{short(pairs / pace.seconds)} pairs/s with {workers} process{'es' if workers > 1 else ''}"
        yield Noted(f"tokenised {pairs:,} pairs in {clock(pace.seconds)}, {rate}")
    return tokenised
