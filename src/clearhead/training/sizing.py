"""The amount of data and memory in, a fitting tokenizer, model and batch out, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Choice(NamedTuple):
    """One setting that was chosen for the user, and why."""

    key: str
    value: Any
    why: str


@dataclass(frozen=True)
class Tier:
    """What suits corpora of up to `pairs` sentence pairs, on a laptop."""

    pairs: float
    vocab_size: int
    dim: int
    ff_dim: int
    num_heads: int
    num_layers: int
    dropout: float
    epochs: float
    lr: float


TIERS = (
    Tier(3_000, 1_000, 128, 256, 4, 2, 0.3, 80, 2e-3),
    Tier(15_000, 3_000, 128, 512, 4, 3, 0.3, 50, 2e-3),
    Tier(60_000, 8_000, 256, 512, 4, 3, 0.3, 25, 1.5e-3),
    Tier(300_000, 12_000, 256, 1024, 4, 3, 0.1, 12, 1.5e-3),
    Tier(2_000_000, 16_000, 512, 2048, 8, 4, 0.1, 6, 7e-4),
    Tier(float("inf"), 32_000, 512, 2048, 8, 6, 0.1, 3, 7e-4),
)


BUDGETS = (4096, 2048, 1024)
ENOUGH_BATCHES = 40
"""Steps in one pass over the data below which smaller batches learn more from it."""


def choose_sizes(pairs: int, longest: int, memory: int) -> list[Choice]:
    """Settings for a translator from the pairs, the longest side in characters, and the free memory in bytes."""
    tier = next(tier for tier in TIERS if pairs <= tier.pairs)
    size = f"{pairs:,} pairs"
    max_tokens = next(budget for budget in BUDGETS if budget == BUDGETS[-1] or suits(budget, tier, pairs, memory))
    steps = batches_per_pass(pairs, max_tokens)
    return [
        Choice("tokenizer.kind", "bpe", "loses nothing, and needs no rules for any language"),
        Choice("tokenizer.vocab_size", tier.vocab_size, f"{size}: more entries would be seen too rarely to be learned"),
        Choice("model.dim", tier.dim, f"{size}: a wider model would learn them by heart"),
        Choice("model.ff_dim", tier.ff_dim, "goes with the width"),
        Choice("model.num_heads", tier.num_heads, f"{tier.dim // tier.num_heads} features a head"),
        Choice("model.encoder_layers", tier.num_layers, "enough for sentences, quick on a CPU"),
        Choice("model.decoder_layers", tier.num_layers, "as deep as the encoder"),
        Choice("model.dropout", tier.dropout, "the less data, the more is dropped"),
        Choice("model.tie", "all", "both sides share one vocabulary"),
        Choice("model.max_len", 256 if longest <= 600 else 512, f"the longest side has {longest:,} characters"),
        Choice("batches.max_tokens", max_tokens, f"about {steps:,} batches a pass; {memory / 2**30:.1f} GiB are free"),
        Choice("train.epochs", tier.epochs, f"about what {size} need before they are learned by heart"),
        Choice("train.lr", tier.lr, "the wider, the smaller"),
        Choice("train.warmup", min(400, 4 * steps), "a few passes over small data, 400 steps at most"),
        Choice("train.validate_every", max(50, steps), "about once per pass"),
    ]


def batches_per_pass(pairs: int, max_tokens: int) -> int:
    """About how many batches the data makes, at 20 tokens a sentence."""
    return max(1, round(20 * pairs / max_tokens))


def suits(max_tokens: int, tier: Tier, pairs: int, memory: int) -> bool:
    """Whether batches of this size leave small data enough steps, and fit into memory."""
    return batches_per_pass(pairs, max_tokens) >= ENOUGH_BATCHES and fits(tier, max_tokens, memory)


def fits(tier: Tier, max_tokens: int, memory: int) -> bool:
    """Whether a training step of this size should fit into half of the free memory."""
    table = tier.vocab_size * tier.dim
    layers = 2 * tier.num_layers * (6 * tier.dim**2 + 2 * tier.dim * tier.ff_dim)
    return training_memory(table + layers, 2 * tier.num_layers, tier.dim, tier.ff_dim, tier.vocab_size, max_tokens) < (
        memory / 2
    )


def training_memory(
    parameters: int, num_layers: int, dim: int, ff_dim: int, vocab_size: int, max_tokens: int, asked: float = 1.0
) -> int:
    """Bytes that one training step takes, about: weights, gradients and Adam's two memories, activations, logits.

    `asked` is the share of tokens that have logits: those that are asked for.
    """
    weights = 16 * parameters
    activations = 4 * max_tokens * num_layers * (16 * dim + 3 * ff_dim)
    logits = 4 * 3 * round(asked * max_tokens) * vocab_size
    return weights + activations + logits


@dataclass(frozen=True)
class TextTier:
    """What suits a language model of texts of up to `characters`, on a laptop."""

    characters: float
    vocab_size: int
    dim: int
    num_layers: int
    max_len: int
    dropout: float
    epochs: float
    lr: float


TEXT_TIERS = (
    TextTier(100_000, 500, 64, 3, 64, 0.2, 20, 3e-3),
    TextTier(3_000_000, 2_000, 192, 4, 128, 0.1, 6, 2e-3),
    TextTier(30_000_000, 8_000, 256, 6, 256, 0.1, 2, 1.5e-3),
    TextTier(300_000_000, 16_000, 512, 8, 256, 0.0, 1, 1e-3),
    TextTier(float("inf"), 32_000, 768, 12, 512, 0.0, 1, 6e-4),
)
LETTERS = 256
"""So many different characters are few enough to be the vocabulary, where the text is short."""
SHORT_TEXT = 3_000_000


def choose_text_sizes(characters: int, alphabet: int, memory: int) -> list[Choice]:
    """Settings for a language model from the characters of its text, how many are different, and the free memory."""
    tier = next(tier for tier in TEXT_TIERS if characters <= tier.characters)
    size = f"{characters:,} characters"
    by_letter = alphabet <= LETTERS and characters <= SHORT_TEXT
    vocab_size = alphabet if by_letter else tier.vocab_size
    # A piece of a word is about three characters long.
    tokens = characters if by_letter else characters // 3
    fitting = (budget for budget in BUDGETS if _text_fits(tier, vocab_size, budget, tokens, memory))
    max_tokens = next(fitting, BUDGETS[-1])
    steps = max(1, round(tokens / max_tokens))
    tokenizer = [
        Choice("tokenizer.kind", "char", f"{size}, {alphabet} of them different: few enough to learn letter by letter")
        if by_letter
        else Choice("tokenizer.kind", "bpe", "loses nothing, and needs no rules for any language"),
        *([] if by_letter else [Choice("tokenizer.vocab_size", vocab_size, f"{size}: more would be seen too rarely")]),
    ]
    return [
        *tokenizer,
        Choice("model.dim", tier.dim, f"{size}: a wider model would take long, or learn them by heart"),
        Choice("model.ff_dim", 4 * tier.dim, "goes with the width"),
        Choice("model.num_heads", max(2, tier.dim // 64), f"{tier.dim // max(2, tier.dim // 64)} features a head"),
        Choice("model.num_layers", tier.num_layers, "goes with the width"),
        Choice("model.max_len", tier.max_len, "tokens that are seen at once"),
        Choice("model.dropout", tier.dropout, "the less text, the more is dropped"),
        Choice("batches.max_tokens", max_tokens, f"about {steps:,} batches a pass; {memory / 2**30:.1f} GiB are free"),
        Choice("train.epochs", tier.epochs, f"about what {size} need before they are learned by heart"),
        Choice("train.optimizer", "adamw", "pulls weights towards zero, as is usual for language models"),
        Choice("train.weight_decay", 0.1, "as is usual for language models"),
        Choice("train.lr", tier.lr, "the wider, the smaller"),
        Choice("train.schedule", "cosine", "falls to nothing at the end of the run"),
        Choice("train.warmup", max(10, min(200, steps)), "a pass over small data, 200 steps at most"),
        Choice("train.smoothing", 0.0, "the true odds of what comes next are wanted"),
        Choice("train.validate_every", max(50, min(1000, steps)), "about once per pass"),
    ]


def _text_fits(tier: TextTier, vocab_size: int, max_tokens: int, tokens: int, memory: int) -> bool:
    """Whether batches of this size leave a small text enough steps, and fit into half of the free memory."""
    parameters = vocab_size * tier.dim + 12 * tier.num_layers * tier.dim**2
    needed = training_memory(parameters, tier.num_layers, tier.dim, 4 * tier.dim, vocab_size, max_tokens)
    return tokens / max_tokens >= ENOUGH_BATCHES and needed < memory / 2
