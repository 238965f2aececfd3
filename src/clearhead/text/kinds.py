"""Training text in, a pipeline of Hugging Face `tokenizers` out: one class per kind of tokenizer.

To add a kind, write a class with the members of `Kind` and add one line to the table at the end; a kind that only comes
with imported models has those of `Rules`, and its line is in IMPORTED.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Protocol

import tokenizers
from pydantic import Field, field_validator
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from clearhead.config import Record
from clearhead.errors import choose, did_you_mean
from clearhead.text.display import BYTE_LETTERS, raw_bytes, show_bytes, show_text
from clearhead.text.sentencepiece import FOREIGN, SPACE
from clearhead.text.specials import SPECIALS, UNK
from clearhead.text.words import CJK, JOINER, joined_words, joiner_marks, spaces

SMALLEST_BPE = len(SPECIALS) + len(BYTE_LETTERS)
UNLIMITED = 2**32
CONTINUED = "##"
"""Stands before a piece of WordPiece that goes on with a word."""


class TokenizerConfig(Record):
    """How text becomes ids."""

    kind: str = "bpe"
    """bpe: pieces of words, any text in any language; word: whole words; char: characters; byte: the bytes of UTF-8."""

    vocab_size: int = Field(default=8000, ge=SMALLEST_BPE)
    """How many different ids a bpe tokenizer may use, control tokens and the 256 bytes included; only for bpe."""

    min_freq: int = Field(default=2, ge=1)
    """A word seen less often becomes <unk>; only for word (char keeps every character it has seen)."""

    lowercase: bool = False
    """Read all text in small letters: for models that only read, and have little data. What is written has none but
    small letters then."""

    joint: bool = True
    """One tokenizer for both languages; if false, one for each."""

    sample: int = Field(default=500_000, ge=1)
    """The tokenizer learns from at most so many pairs, evenly spaced over the training data: more cost time and memory
    (about 1 GB for these) and change little."""

    @field_validator("kind")
    @classmethod
    def _known(cls, kind: str) -> str:
        if kind not in TOKENIZERS:
            raise ValueError(f"unknown tokenizer kind, {did_you_mean(kind, TOKENIZERS)}")
        return kind


class Rules(Protocol):
    """What one kind of tokenizer knows about its tokens."""

    lossless: ClassVar[bool]
    """Whether any text at all comes back unchanged."""

    def show(self, token: str) -> str:
        """One token as a person would want to see it."""

    def raw(self, token: str) -> bytes:
        """The text that one token stands for, as UTF-8; it may begin or end inside a character."""


class Kind(Rules, Protocol):
    """A kind that can be trained."""

    def train(self, config: TokenizerConfig, texts: Iterable[list[str]]) -> tokenizers.Tokenizer:
        """Learn from texts, which come in bunches."""


class Word:
    """Whole words and punctuation marks, by rules that know European languages and Chinese (see `words.py`)."""

    lossless: ClassVar[bool] = False

    def train(self, config: TokenizerConfig, texts: Iterable[list[str]]) -> tokenizers.Tokenizer:
        engine = tokenizers.Tokenizer(models.WordLevel(unk_token=UNK))
        marks = joiner_marks()
        engine.normalizer = normalizers.Sequence([normalizers.Lowercase(), marks]) if config.lowercase else marks
        engine.pre_tokenizer = spaces()
        engine.decoder = joined_words()
        return _count(engine, texts, config.min_freq)

    def show(self, token: str) -> str:
        return show_text(token.strip(JOINER))

    def raw(self, token: str) -> bytes:
        return ("" if token.startswith(JOINER) else " ").encode() + token.strip(JOINER).encode()


class Bpe:
    """Pieces of words learnt by byte pair encoding, with all 256 bytes to fall back on."""

    lossless: ClassVar[bool] = True

    # Pieces never cross these borders. Letters and punctuation are kept apart, so no piece can spell a control token.
    BORDERS = (
        r"(?i:['’](?:s|t|re|ve|m|ll|d))(?![\p{L}\p{M}])"
        rf"| ?[\p{{L}}\p{{M}}&&[{CJK}]]+"
        rf"| ?[\p{{L}}\p{{M}}&&[^{CJK}]]+"
        r"| ?\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{M}\p{N}]+"
        r"|\s+(?!\S)|\s+"
    )

    def train(self, config: TokenizerConfig, texts: Iterable[list[str]]) -> tokenizers.Tokenizer:
        engine = _over_bytes(models.BPE(), config)
        letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        engine.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(self.BORDERS), "isolated"), letters])
        trainer = trainers.BpeTrainer(
            vocab_size=config.vocab_size,
            min_frequency=2,
            special_tokens=list(SPECIALS),
            initial_alphabet=sorted(BYTE_LETTERS),
            show_progress=False,
        )
        engine.train_from_iterator(texts, trainer)
        return engine

    def show(self, token: str) -> str:
        return show_bytes(token)

    def raw(self, token: str) -> bytes:
        return raw_bytes(token)


class Char:
    """Characters, one by one; those not seen in training become <unk>."""

    lossless: ClassVar[bool] = False

    def train(self, config: TokenizerConfig, texts: Iterable[list[str]]) -> tokenizers.Tokenizer:
        engine = tokenizers.Tokenizer(models.WordLevel(unk_token=UNK))
        engine.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        if config.lowercase:
            engine.normalizer = normalizers.Lowercase()
        engine.decoder = decoders.Fuse()
        return _count(engine, texts, min_freq=1)

    def show(self, token: str) -> str:
        return show_text(token)

    def raw(self, token: str) -> bytes:
        return token.encode()


class Byte:
    """The bytes of UTF-8, with nothing to learn: byte b has id 4 + b."""

    lossless: ClassVar[bool] = True

    def train(self, config: TokenizerConfig, texts: Iterable[list[str]]) -> tokenizers.Tokenizer:
        vocabulary = {token: index for index, token in enumerate([*SPECIALS, *BYTE_LETTERS])}
        engine = _over_bytes(models.BPE(vocab=vocabulary, merges=[]), config)
        engine.add_special_tokens(list(SPECIALS))
        return engine

    def show(self, token: str) -> str:
        return show_bytes(token)

    def raw(self, token: str) -> bytes:
        return raw_bytes(token)


class SentencePiece:
    """Pieces of words chosen by their probability, as SentencePiece learns them; imported, not trained here."""

    lossless: ClassVar[bool] = False

    def show(self, token: str) -> str:
        return show_text(token.removeprefix(FOREIGN))

    def raw(self, token: str) -> bytes:
        return token.removeprefix(FOREIGN).replace(SPACE, " ").encode()


class WordPiece:
    """The longest pieces of words that there are, as BERT has them; imported, not trained here."""

    lossless: ClassVar[bool] = False

    def show(self, token: str) -> str:
        return show_text(token)

    def raw(self, token: str) -> bytes:
        return (token.removeprefix(CONTINUED) if token.startswith(CONTINUED) else f" {token}").encode()


def _over_bytes(model: models.Model, config: TokenizerConfig) -> tokenizers.Tokenizer:
    engine = tokenizers.Tokenizer(model)
    if config.lowercase:
        engine.normalizer = normalizers.Lowercase()
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.decoder = decoders.ByteLevel()
    return engine


def _count(engine: tokenizers.Tokenizer, texts: Iterable[list[str]], min_freq: int) -> tokenizers.Tokenizer:
    trainer = trainers.WordLevelTrainer(
        vocab_size=UNLIMITED, min_frequency=min_freq, special_tokens=list(SPECIALS), show_progress=False
    )
    engine.train_from_iterator(texts, trainer)
    return engine


TOKENIZERS: dict[str, type[Kind]] = {"word": Word, "bpe": Bpe, "char": Char, "byte": Byte}

IMPORTED: dict[str, type[Rules]] = {"sentencepiece": SentencePiece, "wordpiece": WordPiece}
"""Kinds that come with imported models."""


def rules_of(kind: str) -> Rules:
    """The rules of a kind, trained or imported."""
    known: dict[str, type[Rules]] = {**TOKENIZERS, **IMPORTED}
    return choose(known, kind, "tokenizer kind")()
