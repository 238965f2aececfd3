"""Texts to be read and the memory in, a fitting tokenizer, classifier and batch out, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearhead.data.masking import ASKED
from clearhead.text.script import SPELT, Script
from clearhead.training.sizing import (
    BUDGETS,
    ENOUGH_BATCHES,
    Choice,
    batches_per_pass,
    budget,
    training_memory,
    validation,
    vocabulary,
)


@dataclass(frozen=True)
class ReaderTier:
    """What suits up to `texts` texts that are to be labelled, on a laptop."""

    texts: float
    vocab_size: int
    dim: int
    ff_dim: int
    num_heads: int
    num_layers: int
    dropout: float
    epochs: float


READER_TIERS = (
    ReaderTier(2_000, 2_000, 64, 128, 4, 1, 0.3, 30),
    ReaderTier(20_000, 8_000, 128, 256, 4, 2, 0.3, 12),
    ReaderTier(200_000, 16_000, 128, 512, 4, 3, 0.2, 6),
    ReaderTier(float("inf"), 24_000, 256, 1024, 4, 4, 0.1, 3),
)
LENGTHS = (64, 128, 256, 512)


def choose_reader_sizes(texts: int, characters: NDArray[np.int32], memory: int, script: Script = SPELT) -> list[Choice]:
    """Settings for a classifier from the number of texts, their lengths in characters, and the free memory in bytes."""
    tier = next(tier for tier in READER_TIERS if texts <= tier.texts)
    size = f"{texts:,} texts"
    long = int(np.percentile(characters, 95, method="higher"))
    max_len = next((length for length in LENGTHS if length >= script.tokens(long)), LENGTHS[-1])
    # As many tokens as are read, on average, and two around each text.
    tokens = texts * (min(max_len, script.tokens(float(np.mean(characters)))) + 2)
    max_tokens = next((b for b in BUDGETS if tokens / b >= ENOUGH_BATCHES and _reads(tier, b, memory)), BUDGETS[-1])
    steps = batches_per_pass(tokens, max_tokens)
    return [
        Choice("tokenizer.kind", "bpe", "loses nothing, and needs no rules for any language"),
        vocabulary(tier.vocab_size, script.signs, size),
        Choice("model.dim", tier.dim, f"{size}: a wider model would learn them by heart"),
        Choice("model.ff_dim", tier.ff_dim, "goes with the width"),
        Choice("model.num_heads", tier.num_heads, f"{tier.dim // tier.num_heads} features a head"),
        Choice("model.num_layers", tier.num_layers, f"{size}: a deeper model would learn them by heart"),
        Choice("model.dropout", tier.dropout, "the less data, the more is dropped"),
        Choice("model.max_len", max_len, f"95 % of the texts have up to {long:,} characters"),
        budget(max_tokens, steps, memory),
        Choice("train.epochs", tier.epochs, f"about what {size} need before they are learned by heart"),
        Choice("train.lr", 1e-3, "for a small model"),
        Choice("train.schedule", "linear", "falls to nothing by the end"),
        Choice("train.warmup", min(400, steps), "one pass over small data, 400 steps at most"),
        validation(steps, at_least=10),
        Choice("train.patience", 4, "learning by heart is noticed after as many validations"),
    ]


def _reads(tier: ReaderTier, max_tokens: int, memory: int) -> bool:
    """Whether a training step of this size should fit into half of the free memory."""
    layers = tier.num_layers * (4 * tier.dim**2 + 2 * tier.dim * tier.ff_dim)
    parameters = tier.vocab_size * tier.dim + layers
    return training_memory(parameters, tier.num_layers, tier.dim, tier.ff_dim, 0, max_tokens) < memory / 2


@dataclass(frozen=True)
class DocumentTier:
    """What suits documents of up to `characters` in all, of which words are hidden, on a laptop."""

    characters: float
    vocab_size: int
    dim: int
    ff_dim: int
    num_layers: int
    max_len: int
    epochs: float


DOCUMENT_TIERS = (
    DocumentTier(300_000, 1_000, 64, 256, 2, 64, 40),
    DocumentTier(10_000_000, 8_000, 128, 512, 4, 128, 20),
    DocumentTier(300_000_000, 16_000, 256, 1024, 4, 128, 8),
    DocumentTier(float("inf"), 32_000, 512, 2048, 8, 128, 2),
)


def choose_masked_sizes(
    characters: NDArray[np.int32], memory: int, asked: float = ASKED, script: Script = SPELT
) -> list[Choice]:
    """Settings for a BERT from the lengths of its documents in characters, and the free memory in bytes.

    `asked` is the share of tokens that are asked for.
    """
    total = int(characters.sum(dtype=np.int64))
    tier = next(tier for tier in DOCUMENT_TIERS if total <= tier.characters)
    size = f"{total:,} characters"
    tokens, entries = script.tokens(total), tier.vocab_size + script.signs
    layers = tier.num_layers * (4 * tier.dim**2 + 2 * tier.dim * tier.ff_dim)
    sizes = entries * tier.dim + layers, tier.num_layers, tier.dim, tier.ff_dim, entries
    fitting = (b for b in BUDGETS if tokens / b >= ENOUGH_BATCHES and training_memory(*sizes, b, asked) < memory / 2)
    max_tokens = next(fitting, BUDGETS[-1])
    steps = batches_per_pass(tokens, max_tokens)
    return [
        Choice("tokenizer.kind", "bpe", "loses nothing, and needs no rules for any language"),
        vocabulary(tier.vocab_size, script.signs, size),
        Choice("model.dim", tier.dim, f"{size}: a wider model would not be filled in the time"),
        Choice("model.ff_dim", tier.ff_dim, "four times the width"),
        Choice("model.num_heads", 4, f"{tier.dim // 4} features a head"),
        Choice("model.num_layers", tier.num_layers, "goes with the width"),
        Choice("model.max_len", tier.max_len, "most of what tells a word stands near it"),
        budget(max_tokens, steps, memory),
        Choice("train.epochs", tier.epochs, f"about what {size} need"),
        Choice("train.lr", 1e-3 if tier.dim < 256 else 7e-4, "the wider, the smaller"),
        Choice("train.schedule", "linear", "falls to nothing by the end"),
        Choice("train.warmup", min(1_000, steps), "one pass over small data, 1,000 steps at most"),
        Choice("train.smoothing", 0.0, "nothing is to be smoothed where one word of many is asked for"),
        validation(steps, at_least=10),
    ]
