"""Tables of texts in, checked and tokenised texts to train and to validate on out: for classifiers and for BERT."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from clearhead.data.columns import read_columns
from clearhead.data.corpus import cache_key, cache_root
from clearhead.data.hashes import TEST_SEED
from clearhead.data.texts import Survey, Texts, hold_out, kept_texts, seen_before, survey
from clearhead.data.tokenised import Tagged, TokenisedTexts, texts_key, tokenising_texts
from clearhead.errors import DataError
from clearhead.run.preparing import Names, stored_rows
from clearhead.run.task import Progress, Ticket
from clearhead.text.kinds import TokenizerConfig
from clearhead.text.tokenizer import Tokenizer, TokenizerPair
from clearhead.training.events import Noted, Pace, Reading
from clearhead.training.logbook import clock, short


class Limits(Protocol):
    """What settings of texts say of which are used."""

    @property
    def max_chars(self) -> int: ...
    @property
    def drop_duplicates(self) -> bool: ...
    @property
    def hold_out(self) -> int | float | None: ...


@dataclass(frozen=True, eq=False)
class Gathered:
    """What one reading found, and which texts are set aside."""

    survey: Survey
    validation: Survey | None
    """What was found in other texts to validate on, if there are any."""
    held_out: NDArray[np.bool_]
    """Texts set aside for validation."""
    tested: NDArray[np.bool_]
    """Texts set aside for the final test."""

    @property
    def trained(self) -> NDArray[np.bool_]:
        """Which texts are trained on."""
        return self.survey.kept & ~self.held_out & ~self.tested

    def report(self) -> list[str]:
        """What a person should know."""
        lines = self.survey.report()
        if self.validation is not None:
            lines += self.validation.report()
            seen = seen_before(self.survey, self.validation)
            if seen:
                lines.append(f"{seen:,} of {self.validation.num_kept:,} validation texts also occur in training")
        return lines

    def training_texts(self, sample: int | None = None) -> Iterable[str]:
        """The texts that are trained on: all, or at most `sample`, evenly spaced."""
        total = int(np.count_nonzero(self.trained))
        wanted = total if sample is None else min(sample, total)
        for place, (_, text) in enumerate(kept_texts(self.survey, self.trained)):
            if (place + 1) * wanted // total > place * wanted // total:
                yield text


def gather(
    texts: Texts,
    validation: Texts | None,
    limits: Limits,
    seed: int,
    *,
    hold_out_test: int | float | None = None,
    progress: Progress | None = None,
) -> Gathered:
    """Read all texts once, judge each, and set some aside where none are given to validate or test on."""
    found = _surveyed(texts, limits.max_chars, limits.drop_duplicates, progress)
    # Every text that is measured on counts, also one that came before.
    others = None if validation is None else _surveyed(validation, limits.max_chars, False, progress)
    tested = held_out = np.zeros(len(found.reasons), dtype=np.bool_)
    if hold_out_test is not None:
        tested = hold_out(found, hold_out_test, TEST_SEED)
    if others is None:
        held_out = hold_out(found, limits.hold_out, seed, among=~tested)
    return Gathered(found, others, held_out, tested)


def _surveyed(texts: Texts, max_chars: int, drop_duplicates: bool, progress: Progress | None) -> Survey:
    pace = Pace("checking", unit="texts")

    def tell(count: int) -> None:
        reading = pace.at(count, texts.share_read())
        if reading is not None and progress is not None:
            progress(reading)

    return survey(texts, max_chars=max_chars, drop_duplicates=drop_duplicates, progress=tell)


def learn_tokenizer(
    config: TokenizerConfig, gathered: Gathered, tokenizers: TokenizerPair | None
) -> Generator[Noted, None, TokenizerPair]:
    """The tokenizer there is, or one that learns from the texts to train on; both sides of the pair are the same."""
    if tokenizers is not None:
        return tokenizers
    total = int(np.count_nonzero(gathered.trained))
    if config.sample < total:
        yield Noted(f"the tokenizer learns from a sample of {config.sample:,} of {total:,} texts (tokenizer.sample)")
    tokenizer = Tokenizer.train(config, gathered.training_texts(config.sample))
    yield Noted(f"tokenizer: {config.kind}, {tokenizer.vocab_size:,} entries")
    return TokenizerPair(tokenizer, tokenizer)


class Corpus(NamedTuple):
    """Tokenised texts to train and to validate on, and how to name them to other processes."""

    training: TokenisedTexts
    validation: TokenisedTexts
    ticket: Callable[[], Ticket]


def tokenised(
    gathered: Gathered,
    tokenizer: Tokenizer,
    tagged: Callable[[Survey], Iterable[Tagged]],
    *,
    content: str,
    with_words: bool = False,
) -> Generator[Noted | Reading, None, Corpus]:
    """Tokenise what `tagged` makes of the kept texts of a survey; `content` says what that is, apart from the texts."""
    everything, name = yield from tokenised_survey(gathered.survey, tokenizer, tagged, content, with_words)
    rows = tuple(np.flatnonzero(mask[everything.numbers]) for mask in (gathered.trained, gathered.held_out))
    training, validation, validation_name = everything.subset(rows[0]), everything.subset(rows[1]), name
    if gathered.validation is not None:
        found = yield from tokenised_survey(gathered.validation, tokenizer, tagged, content, with_words)
        validation, validation_name = found
    of_split = (("train", gathered.survey, training), ("validate", gathered.validation or gathered.survey, validation))
    for purpose, source, texts in of_split:
        if not len(texts.tags):
            raise DataError(f"{source.texts.name}: no text is left to {purpose} on")
    return Corpus(training, validation, partial(stored_rows, name, validation_name, (rows[0], rows[1])))


def open_corpus(ticket: Ticket) -> Corpus:
    """Open what another process on this host has tokenised."""
    names = Names(*ticket)
    rows = read_columns(cache_root() / names.rows).arrays
    everything = TokenisedTexts.open(cache_root() / names.corpus)
    training, validation = everything.subset(rows["training"]), everything.subset(rows["validation"])
    if names.validation != names.corpus:
        validation = TokenisedTexts.open(cache_root() / names.validation)
    return Corpus(training, validation, lambda: names)


def tokenised_survey(
    survey: Survey,
    tokenizer: Tokenizer,
    tagged: Callable[[Survey], Iterable[Tagged]],
    content: str,
    with_words: bool,
) -> Generator[Noted | Reading, None, tuple[TokenisedTexts, str]]:
    """What `tagged` makes of the kept texts of one survey, tokenised, and its name in the cache."""
    chosen = np.packbits(survey.kept).tobytes().hex()
    content = cache_key(survey.texts.fingerprint(), chosen, content)
    # What is tokenised may be sentences, of which nobody knows the number.
    pace = Pace("tokenising", unit="texts")
    steps = tokenising_texts(content, lambda: tagged(survey), tokenizer, with_words=with_words)
    found = yield from pace.tell(steps)
    if pace.is_slow:
        count = len(found.tags)
        rate = f"{short(count / pace.seconds)} texts/s"
        yield Noted(f"tokenised {count:,} texts in {clock(pace.seconds)}, {rate}")
    return found, texts_key(content, tokenizer, with_words=with_words)
