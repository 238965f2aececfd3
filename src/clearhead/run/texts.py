"""The settings of a language model's text in, windows of tokens to train and to validate on out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from clearhead.data.corpus import cache_key, cache_root
from clearhead.data.passages import RunningText, pieces, stretch
from clearhead.data.windows import (
    WINDOWINGS,
    Random,
    TextConfig,
    Tiled,
    TokenisedText,
    opening_or_tokenising_text,
    text_key,
)
from clearhead.errors import ConfigError, DataError
from clearhead.run.settings import GptRun
from clearhead.run.task import Prepared, Ticket
from clearhead.text.kinds import TokenizerConfig
from clearhead.text.script import Gauge, Script
from clearhead.text.tokenizer import Tokenizer, TokenizerPair
from clearhead.training.events import Noted, Pace, Reading
from clearhead.training.logbook import clock, short

KNOWS_ALL = "char"
"""A tokenizer that learns from the whole text, whatever the sample: a character it has not seen is lost."""


@dataclass(frozen=True, eq=False)
class ExaminedText:
    """What a text is, or a part of it, as far as reading it once has told."""

    text: RunningText
    start: int
    end: int
    """Its part, counted in characters from 0."""
    lines: int
    """Of the whole file."""
    digest: str
    alphabet: frozenset[str]
    """All characters of the whole file."""
    script: Script
    """How it is written."""

    def __len__(self) -> int:
        return self.end - self.start

    def passages(self) -> Iterator[str]:
        """The part as it runs on."""
        return stretch(self.text.passages(), self.start, self.end)

    def part(self, start: int, end: int) -> ExaminedText:
        """Another part of the same file."""
        return replace(self, start=start, end=end)

    def fingerprint(self) -> str:
        """The same for the same part of the same text."""
        return cache_key(self.digest, f"{self.start} to {self.end}")

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return str(self.text.file.path)


@dataclass(frozen=True, eq=False)
class ExaminedTexts:
    """What is trained on, and what is validated on: another text, or the end of the same."""

    training: ExaminedText
    validation: ExaminedText

    @property
    def is_one(self) -> bool:
        """Whether both are parts of one file."""
        return self.training.text is self.validation.text

    def report(self) -> list[str]:
        """What a person should know of them."""
        texts = [self.training] if self.is_one else [self.training, self.validation]
        sizes = [f"{text.name}: {_characters(text)} in {text.lines:,} lines" for text in texts]
        shares = f"{len(self.training):,} characters to train on, {len(self.validation):,} to validate on"
        return [*sizes, *(note for text in texts for note in text.text.notes()), shares]


def _characters(text: ExaminedText) -> str:
    return f"{len(text.alphabet):,} different characters"


def examine_texts(data: TextConfig, progress: Callable[[Reading], None] | None = None) -> ExaminedTexts:
    """Read every text once, and set the end of the one to train on aside where there is no other to validate on."""
    if data.text is None:
        raise ConfigError("say which text to train on: data.text = FILE, or --text FILE")
    whole = examine_text(data.path(data.text), progress)
    if data.validation_text is not None:
        return ExaminedTexts(whole, examine_text(data.path(data.validation_text), progress))
    # The first part is rounded down, as nanoGPT does it.
    border = int(len(whole) * (1 - data.hold_out))
    if not 0 < border < len(whole):
        raise DataError(f"{whole.name} has {len(whole):,} characters: too few to train and to validate on")
    return ExaminedTexts(whole.part(0, border), whole.part(border, len(whole)))


def examine_text(path: Path, progress: Callable[[Reading], None] | None = None) -> ExaminedText:
    """Read a text once."""
    text, pace, characters, alphabet = RunningText(path), Pace("reading", unit="characters"), 0, set[str]()
    gauge = Gauge()
    for passage in text.passages():
        characters += len(passage)
        alphabet.update(passage)
        if not gauge.is_sure:
            gauge.add(passage)
        reading = pace.at(characters, text.file.share_read)
        if reading is not None and progress is not None:
            progress(reading)
    return ExaminedText(text, 0, characters, text.file.num_lines, text.file.digest(), frozenset(alphabet), gauge.script)


def prepare_texts(
    config: GptRun, found: ExaminedTexts, tokenizers: TokenizerPair | None = None
) -> Generator[Noted | Reading, None, Prepared]:
    """Train the tokenizer if there is none yet, tokenise, and lay windows; what a person should know is yielded."""
    for line in found.report():
        yield Noted(line)
    if tokenizers is None:
        tokenizer = Tokenizer.train(config.tokenizer, sampled(found.training, config.tokenizer))
        tokenizers = TokenizerPair(tokenizer, tokenizer)
        yield Noted(f"tokenizer: {config.tokenizer.kind}, {tokenizer.vocab_size:,} entries")
    tokenizer = tokenizers.source
    training = yield from tokenised(found.training, tokenizer)
    validation = yield from tokenised(found.validation, tokenizer)
    for text, tokens in ((found.training, training), (found.validation, validation)):
        if not len(tokens.ids):
            raise DataError(f"{text.name}: no token is left of {len(text):,} characters")
        if tokens.unknown:
            yield Noted(f"{text.name}: {tokens.unknown:,} tokens are unknown to the tokenizer, and count as <unk>")
    size = training.characters / len(training.ids)
    yield Noted(
        f"{len(training.ids):,} tokens of {size:.2f} characters to train on, {len(validation.ids):,} to validate on"
    )
    keys = tuple(text_key(text.fingerprint(), tokenizer) for text in (found.training, found.validation))
    return windowed(config, tokenizers, training, validation, keys)


def open_texts(config: GptRun, tokenizers: TokenizerPair, ticket: Ticket) -> Prepared:
    """Open what another process on this host has prepared."""
    training, validation = (TokenisedText.open(cache_root() / name) for name in ticket)
    return windowed(config, tokenizers, training, validation, ticket)


def windowed(
    config: GptRun, tokenizers: TokenizerPair, training: TokenisedText, validation: TokenisedText, ticket: Ticket
) -> Prepared:
    """Lay windows over tokenised texts, as the settings say."""
    data, max_len, size = config.data, config.model.max_len, config.batches.batch_size
    count = -(-len(training.ids) // max_len)
    # Windows that are drawn may be as many as make every batch a whole one.
    windows = WINDOWINGS[data.windows](training.ids, max_len, count if size is None else -(-count // size) * size)
    validated: Tiled | Random = Tiled(validation.ids, max_len)
    if data.validation_windows is not None:
        validated = Random(validation.ids, max_len, data.validation_windows)
    return Prepared(tokenizers, windows, validated, len(training.ids), lambda: ticket)


def tokenised(text: ExaminedText, tokenizer: Tokenizer) -> Generator[Noted | Reading, None, TokenisedText]:
    """The tokens of a text, from the cache if they are there."""
    pace = Pace("tokenising", len(text), unit="characters")
    found = yield from pace.tell(opening_or_tokenising_text(text.fingerprint(), text.passages, tokenizer))
    if pace.is_slow:
        rate = f"{short(len(text) / pace.seconds)} characters/s"
        yield Noted(f"tokenised {len(text):,} characters in {clock(pace.seconds)}, {rate}")
    return found


def sampled(text: ExaminedText, config: TokenizerConfig) -> Iterable[str]:
    """What a tokenizer learns from: the whole text, or so many pieces of it, evenly spaced."""
    every = 1 if config.kind == KNOWS_ALL else max(1, -(-text.lines // config.sample))
    return (piece for place, piece in enumerate(pieces(text.passages())) if place % every == 0)
