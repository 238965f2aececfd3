"""Settings in, checked and tokenised training and validation pairs out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data.augment import Alterer
from clearhead.data.columns import ColumnWriter, read_columns
from clearhead.data.corpus import TokenisedPairs, cache_key, cache_root, corpus_key, opening_or_tokenising
from clearhead.data.crew import Pair, num_workers
from clearhead.data.doctor import Checkup, check, held_out_texts, hold_out, hold_out_test, kept_pairs
from clearhead.data.examples import Integers
from clearhead.data.extra import MorePairs
from clearhead.data.sources import DataConfig, PairSource, open_source
from clearhead.data.splitting import Splitting
from clearhead.errors import ConfigError, DataError, MissingInputError, StorageError
from clearhead.run.settings import TranslatorRun
from clearhead.run.task import Prepared, Ticket
from clearhead.text.tokenizer import TokenizerPair
from clearhead.training.events import Noted, Pace, Reading
from clearhead.training.logbook import clock, short

_MOST_TO_LEARN_FROM = 200_000


@dataclass(frozen=True, eq=False)
class Examined:
    """What the doctor found, and which pairs are set aside."""

    config: DataConfig
    seed: int
    source: PairSource
    validation_source: PairSource | None
    checkup: Checkup
    held_out: NDArray[np.bool_]
    """Pairs set aside for validation."""
    tested: NDArray[np.bool_]
    """Pairs set aside for the final test."""

    @property
    def trained(self) -> NDArray[np.bool_]:
        """Which pairs are trained on, as far as they are kept."""
        return ~(self.held_out | self.tested)

    def pairs(self) -> Iterator[Pair]:
        """All kept pairs by number, each that is trained on followed by its altered copies; then more pairs."""
        yield from self._own_pairs()
        if self._more_pairs is not None:
            yield from self._more_pairs.pairs(len(self.held_out) + 1)

    def _own_pairs(self) -> Iterator[Pair]:
        trained = self.trained
        for number, source, target in kept_pairs(self.source, self.checkup):
            yield number, source, target
            if trained[number - 1]:
                for changed in self._alterer.altered(source, target):
                    yield number, *changed

    @cached_property
    def _more_pairs(self) -> MorePairs | None:
        """Pairs that are trained on beside those that were examined."""
        if self.config.extra is None:
            return None
        by = self.config.hold_out_by
        unseen = [held_out_texts(self.checkup, self.held_out | self.tested, by)]
        unseen += [held_out_texts(given, np.ones(len(given.reasons), dtype=bool), by) for given in self._given()]
        path, limits = self.config.loose(self.config.extra), self.config.limits
        return MorePairs(path, limits, lambda *texts: any(is_held_out(*texts) for is_held_out in unseen))

    def _given(self) -> Iterator[Checkup]:
        """The pairs that are given to validate and to test on."""
        if self.checkup.validation is not None:
            yield self.checkup.validation
        test_source = open_source(self.config, "test")
        if test_source is not None:
            yield check(test_source, self.config.limits, cache=cache_root())

    @cached_property
    def _alterer(self) -> Alterer:
        return Alterer(self.config.augment, self.seed, self._pairs_to_learn_from)

    def _pairs_to_learn_from(self) -> Iterator[tuple[str, str]]:
        """All that are trained on, or so many that a lexicon of them fits into memory."""
        step = -(-self.num_training_pairs // _MOST_TO_LEARN_FROM)
        return islice(self.training_pairs(), 0, None, step)

    def training_pairs(self) -> Iterator[tuple[str, str]]:
        """Source and target of each pair that is trained on, unaltered and once, without those of other files."""
        trained = self.trained
        for number, source, target in kept_pairs(self.source, self.checkup):
            if trained[number - 1]:
                yield source, target

    def rows(self, numbers: Integers) -> tuple[Integers, Integers]:
        """Which of the pairs with these numbers are trained on, as often as they are, and which validated on."""
        # More pairs come last.
        own = numbers[: np.searchsorted(numbers, len(self.held_out), side="right")]
        of_parts = np.array([part.repeat for part in self.source.parts] or [1])
        trained = np.flatnonzero(self.trained[own - 1])
        repeated = np.repeat(trained, of_parts[self.checkup.parts[own[trained] - 1]])
        return np.append(repeated, np.arange(len(own), len(numbers))), np.flatnonzero(self.held_out[own - 1])

    @property
    def num_training_pairs(self) -> int:
        """How many pairs are kept and not held out."""
        return int(np.count_nonzero(self.checkup.kept & self.trained))

    def training_texts(self, side: int, sample: int | None = None) -> Iterator[str]:
        """One side of the pairs that are trained on, as often as they are: all, or at most `sample`, evenly spaced."""
        trained, parts = self.trained.tobytes(), self.checkup.parts.tobytes()
        repeats = [part.repeat for part in self.source.parts] or [1]
        total = self.num_training_pairs
        wanted = total if sample is None else min(sample, total)
        place, before, is_wanted = -1, 0, False
        for number, *texts in self._own_pairs():
            if not trained[number - 1]:
                continue
            if number != before:  # and not an altered copy of the same
                before, place = number, place + 1
                is_wanted = (place + 1) * wanted // total > place * wanted // total
            if is_wanted:
                yield from [texts[side]] * repeats[parts[number - 1]]

    def fingerprint(self) -> str:
        """The same for the same pairs."""
        facts = [self.source.fingerprint(), self.config.limits.model_dump_json()]
        if self.config.augment != type(self.config.augment)():
            facts += [self.config.augment.model_dump_json(), f"seed {self.seed}"]
            facts.append(blake2b(self.trained.tobytes(), digest_size=16).hexdigest())
        if self._more_pairs is not None:
            facts.append(self._more_pairs.fingerprint())
        return cache_key(*facts)


class Names(NamedTuple):
    """What prepared pairs are called in the cache."""

    corpus: str
    validation: str
    """The corpus itself, where pairs of it are set aside."""
    rows: str
    """Which of the corpus are trained on, repetitions included, and which are validated on."""


def stored_rows(corpus: str, validation: str, rows: tuple[Integers, Integers]) -> Names:
    """Put the rows into the cache if they are not there yet, or are damaged."""
    sums = (blake2b(part.tobytes(), digest_size=16).hexdigest() for part in rows)
    key = cache_key("rows", corpus, *sums)
    names = Names(corpus, validation, key)
    with contextlib.suppress(MissingInputError, StorageError):
        read_columns(cache_root() / key)
        return names
    with ColumnWriter(cache_root() / key, {"training": "int64", "validation": "int64"}) as writer:
        writer.append("training", rows[0].astype(np.int64).data)
        writer.append("validation", rows[1].astype(np.int64).data)
        writer.finish({})
    return names


def open_prepared(config: TranslatorRun, tokenizers: TokenizerPair, ticket: Ticket) -> Prepared:
    """Open what another process on this host has prepared."""
    names = Names(*ticket)
    rows = read_columns(cache_root() / names.rows).arrays
    everything = TokenisedPairs.open(cache_root() / names.corpus)
    training, validation = everything.subset(rows["training"]), everything.subset(rows["validation"])
    if names.validation != names.corpus:
        validation = TokenisedPairs.open(cache_root() / names.validation)
    training = training.split_by(_splitting(config, tokenizers))
    return Prepared(tokenizers, training, validation, _num_different(training), lambda: names)


def _splitting(config: TranslatorRun, tokenizers: TokenizerPair) -> Splitting | None:
    chance = config.data.split_pieces
    return Splitting(tokenizers.source, chance, config.model.max_len - 1) if chance else None


def _num_different(training: TokenisedPairs) -> int:
    return len(np.unique(training.line_numbers))


def examine(config: TranslatorRun, progress: Callable[[Reading], None] | None = None) -> Examined:
    """Read all data once, judge every pair, and set pairs aside where none are given to validate or test on.

    `progress` hears from time to time how far it has come.
    """
    return examine_data(config.data, config.train.seed, progress)


def examine_data(data: DataConfig, seed: int, progress: Callable[[Reading], None] | None = None) -> Examined:
    """The same from the settings that decide it, which a finished model remembers."""
    source = open_source(data, "train")
    validation_source = open_source(data, "validation")
    assert source is not None
    if data.hold_out_test is not None and open_source(data, "test") is not None:
        raise ConfigError("there are test data already: leave out data.hold_out_test, or the test files")
    pace = Pace("checking")

    def tell(pairs: int) -> None:
        reading = pace.at(pairs, source.share_read())
        if reading is not None and progress is not None:
            progress(reading)

    checkup = check(source, data.limits, validation_source, tell, cache_root())
    held_out = tested = np.zeros(len(checkup.reasons), dtype=bool)
    if data.hold_out_test is not None:
        tested = hold_out_test(checkup, data.hold_out_test, data.hold_out_by)
    if validation_source is None:
        held_out = hold_out(checkup, data.hold_out, seed, data.hold_out_by, among=~tested)
    return Examined(data, seed, source, validation_source, checkup, held_out, tested)


def prepare(
    config: TranslatorRun, examined: Examined, tokenizers: TokenizerPair | None = None
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
    kept = examined.checkup.report.kept
    everything, corpus_at = yield from _tokenised(config, examined.fingerprint(), examined.pairs, kept, tokenizers)
    rows = examined.rows(everything.line_numbers)
    training, validation, validation_at = everything.subset(rows[0]), everything.subset(rows[1]), corpus_at
    training = training.split_by(_splitting(config, tokenizers))
    if examined.validation_source is not None:
        given, checkup = examined.validation_source, examined.checkup.validation
        assert checkup is not None
        content = cache_key(given.fingerprint(), config.data.limits.model_dump_json())
        validation, validation_at = yield from _tokenised(
            config, content, lambda: kept_pairs(given, checkup), checkup.report.kept, tokenizers
        )
    if everything.dropped_too_long:
        yield Noted(f"dropped {everything.dropped_too_long:,} pairs of more than {config.model.max_len} tokens")
    validated = examined.validation_source or examined.source
    for pairs, name, purpose in ((training, examined.source.name, "train"), (validation, validated.name, "validate")):
        if not len(pairs):
            raise DataError(f"{name}: no pair is left to {purpose} on")
    num_trained = _num_different(training)
    seen = f" (seen {len(training):,} times a pass)" if len(training) != num_trained else ""
    tested = f", {np.count_nonzero(examined.tested):,} to test on" if examined.tested.any() else ""
    num_more = np.count_nonzero(training.line_numbers > len(examined.held_out))
    more = f", {num_more:,} of them from {config.data.extra}" if config.data.extra else ""
    yield Noted(f"{num_trained:,} pairs to train on{more}{seen}, {len(validation):,} to validate on{tested}")
    ticket = partial(stored_rows, corpus_at, validation_at, rows)
    return Prepared(tokenizers, training, validation, num_trained, ticket)


def _tokenised(
    config: TranslatorRun, content: str, pairs: Callable[[], Iterable[Pair]], count: int, tokenizers: TokenizerPair
) -> Generator[Noted | Reading, None, tuple[TokenisedPairs, str]]:
    """The pairs, and their name in the cache."""
    max_len = config.model.max_len
    workers = num_workers(count, config.data.workers)
    pace = Pace("tokenising", count)
    tokenised = yield from pace.tell(
        opening_or_tokenising(content, pairs, tokenizers, max_len=max_len, workers=workers)
    )
    if pace.is_slow:
        rate = f"{short(count / pace.seconds)} pairs/s with {workers} process{'es' if workers > 1 else ''}"
        yield Noted(f"tokenised {count:,} pairs in {clock(pace.seconds)}, {rate}")
    return tokenised, corpus_key(content, tokenizers, max_len)
