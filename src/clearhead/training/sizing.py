"""The amount of data and memory in, a fitting tokenizer, model and batch out, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from clearhead.text.script import SPELT, Script


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
    """Adam's rate; Muon has its own."""


TIERS = (
    Tier(3_000, 1_000, 128, 256, 4, 2, 0.3, 50, 2e-3),
    Tier(15_000, 3_000, 128, 512, 4, 3, 0.3, 30, 2e-3),
    Tier(60_000, 8_000, 256, 512, 4, 3, 0.3, 16, 1.5e-3),
    Tier(300_000, 12_000, 256, 1024, 4, 3, 0.1, 8, 1.5e-3),
    Tier(2_000_000, 16_000, 512, 2048, 8, 4, 0.1, 6, 7e-4),
    Tier(float("inf"), 32_000, 512, 2048, 8, 6, 0.1, 3, 7e-4),
)


BUDGETS = (4096, 2048, 1024)
ENOUGH_BATCHES = 40
"""Steps in one pass over the data below which smaller batches learn more from it."""
MUON_WIDTH = 256
"""Up to this width Muon's own arithmetic is a small part of a step on a CPU, and it was measured to pay."""


def choose_sizes(
    pairs: int, longest: int, memory: int, tokens_a_pair: float = 20.0, signs: int = 0, optimizer: str | None = None
) -> list[Choice]:
    """Settings for a translator from the pairs, the longest side in characters, and the free memory in bytes.

    `tokens_a_pair` is about what the longer side of a pair has, `signs` how many different signs want a token each, and
    `optimizer` the one that must be used, if it is not free to be chosen.
    """
    tier = next(tier for tier in TIERS if pairs <= tier.pairs)
    size, tokens = f"{pairs:,} pairs", round(tokens_a_pair * pairs)
    max_tokens = next(most for most in BUDGETS if most == BUDGETS[-1] or suits(most, tier, tokens, memory))
    steps = batches_per_pass(tokens, max_tokens)
    return [
        Choice("tokenizer.kind", "bpe", "loses nothing, and needs no rules for any language"),
        vocabulary(tier.vocab_size, signs, size),
        Choice("model.dim", tier.dim, f"{size}: a wider model would learn them by heart"),
        Choice("model.ff_dim", tier.ff_dim, "goes with the width"),
        Choice("model.num_heads", tier.num_heads, f"{tier.dim // tier.num_heads} features a head"),
        Choice("model.encoder_layers", tier.num_layers, "enough for sentences, quick on a CPU"),
        Choice("model.decoder_layers", tier.num_layers, "as deep as the encoder"),
        Choice("model.dropout", tier.dropout, "the less data, the more is dropped"),
        Choice("model.tie", "all", "both sides share one vocabulary"),
        Choice("model.positions", "rotary", "learns more quickly than sinusoidal ones"),
        Choice("model.start", "still", "layers that add nothing at first learn more quickly"),
        Choice("model.max_len", 256 if longest <= 600 else 512, f"the longest side has {longest:,} characters"),
        budget(max_tokens, steps, memory),
        Choice("train.epochs", tier.epochs, f"about what {size} need before they are learned by heart"),
        *learning(tier, optimizer),
        Choice("train.warmup", min(400, 4 * steps), "a few passes over small data, 400 steps at most"),
        validation(steps, at_least=50),
    ]


def learning(tier: Tier, optimizer: str | None) -> list[Choice]:
    """By which rule weights move, and how far; the rates of one rule do not suit another."""
    if (optimizer or ("muon" if tier.dim <= MUON_WIDTH else "adam")) != "muon":
        return [Choice("train.lr", tier.lr, "the wider, the smaller")]
    return [
        Choice("train.optimizer", "muon", "learns more from each pass than Adam"),
        Choice("train.lr", 7e-3, "what suits Muon"),
        Choice("train.table_rate", 0.5, "rare tokens would be thrown about by the whole rate"),
        Choice("train.weight_decay", 0.05, "as is usual with Muon"),
        Choice("train.schedule", "linear", "falls to nothing at the end of the run"),
    ]


def vocabulary(size: int, signs: int, data: str) -> Choice:
    """How many entries a tokenizer has, where so many different signs want one each."""
    why = f"{data}: more entries would be seen too rarely to be learned"
    return Choice("tokenizer.vocab_size", size + signs, f"{why}; {signs:,} for as many signs" if signs else why)


def budget(max_tokens: int, steps: int, memory: int) -> Choice:
    """How many tokens a batch has."""
    batches = "1 batch" if steps == 1 else f"{steps:,} batches"
    return Choice("batches.max_tokens", max_tokens, f"about {batches} a pass; {memory / 2**30:.1f} GiB are free")


def validation(steps: int, at_least: int, at_most: int | None = None) -> Choice:
    """After how many steps to validate: about once per pass, unless passes are too short or too long for that."""
    every = max(at_least, steps if at_most is None else min(at_most, steps))
    usual, length = "about once per pass", "short" if steps < at_least else "long"
    return Choice(
        "train.validate_every", every, usual if every == steps else f"a pass is {length}: about {steps:,} steps"
    )


def batches_per_pass(tokens: float, max_tokens: int) -> int:
    """About how many batches so many tokens make."""
    return max(1, round(tokens / max_tokens))


def suits(max_tokens: int, tier: Tier, tokens: int, memory: int) -> bool:
    """Whether batches of this size leave small data enough steps, and fit into memory."""
    return batches_per_pass(tokens, max_tokens) >= ENOUGH_BATCHES and fits(tier, max_tokens, memory)


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


def choose_text_sizes(characters: int, alphabet: int, memory: int, script: Script = SPELT) -> list[Choice]:
    """Settings for a language model from the characters of its text, how many are different, and the free memory."""
    tier = next(tier for tier in TEXT_TIERS if characters <= tier.characters)
    size = f"{characters:,} characters"
    by_letter = alphabet <= LETTERS and characters <= SHORT_TEXT
    vocab_size = alphabet if by_letter else tier.vocab_size + script.signs
    tokens = characters if by_letter else round(script.tokens(characters))
    fitting = (most for most in BUDGETS if _text_fits(tier, vocab_size, most, tokens, memory))
    max_tokens = next(fitting, BUDGETS[-1])
    steps = batches_per_pass(tokens, max_tokens)
    tokenizer = [
        Choice("tokenizer.kind", "char", f"{size}, {alphabet} of them different: few enough to learn letter by letter")
        if by_letter
        else Choice("tokenizer.kind", "bpe", "loses nothing, and needs no rules for any language"),
        *([] if by_letter else [vocabulary(tier.vocab_size, script.signs, size)]),
    ]
    return [
        *tokenizer,
        Choice("model.dim", tier.dim, f"{size}: a wider model would take long, or learn them by heart"),
        Choice("model.ff_dim", 4 * tier.dim, "goes with the width"),
        Choice("model.num_heads", max(2, tier.dim // 64), f"{tier.dim // max(2, tier.dim // 64)} features a head"),
        Choice("model.num_layers", tier.num_layers, "goes with the width"),
        Choice("model.max_len", tier.max_len, "tokens that are seen at once"),
        Choice("model.dropout", tier.dropout, "the less text, the more is dropped"),
        budget(max_tokens, steps, memory),
        Choice("train.epochs", tier.epochs, f"about what {size} need before they are learned by heart"),
        Choice("train.optimizer", "adamw", "pulls weights towards zero, as is usual for language models"),
        Choice("train.weight_decay", 0.1, "as is usual for language models"),
        Choice("train.lr", tier.lr, "the wider, the smaller"),
        Choice("train.schedule", "cosine", "falls to nothing at the end of the run"),
        Choice("train.warmup", max(10, min(200, steps)), "a pass over small data, 200 steps at most"),
        Choice("train.smoothing", 0.0, "the true odds of what comes next are wanted"),
        validation(steps, at_least=50, at_most=1_000),
    ]


def _text_fits(tier: TextTier, vocab_size: int, max_tokens: int, tokens: int, memory: int) -> bool:
    """Whether batches of this size leave a small text enough steps, and fit into half of the free memory."""
    parameters = vocab_size * tier.dim + 12 * tier.num_layers * tier.dim**2
    needed = training_memory(parameters, tier.num_layers, tier.dim, 4 * tier.dim, vocab_size, max_tokens)
    return tokens / max_tokens >= ENOUGH_BATCHES and needed < memory / 2
