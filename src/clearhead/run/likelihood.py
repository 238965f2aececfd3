"""A language model and a text in, how well it foretells the text out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clearhead.config import build
from clearhead.data.batches import BatchConfig, fixed_parts
from clearhead.data.corpus import driven
from clearhead.data.naming import read_settings
from clearhead.data.windows import TextConfig, Tiled, TokenisedText, WindowBatch, opening_or_tokenising_text
from clearhead.engines.writing import TextWriter
from clearhead.errors import ConfigError, DataError, choose
from clearhead.run.texts import ExaminedText, examine_text, examine_texts

BATCH_TOKENS = 4096
CONFIDENCE = 1.96
"""Standard errors to either side of a mean that hold it in 95 of 100 cases."""


@dataclass(frozen=True)
class Likelihood:
    """How surprised a model is by a text, whose tokens it was asked for in windows, from what stood before them."""

    nll: float
    """The summed negative log-likelihood, in nats."""
    tokens: int
    characters: int
    bytes: int
    unknown: int
    """Tokens that the tokenizer does not know; what they stand for was not asked for."""
    error: float
    """Half of the 95 % confidence interval of the loss, over windows."""

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nll / self.tokens

    @property
    def perplexity(self) -> float:
        """How many tokens the model hesitates between, on average."""
        return math.exp(self.loss)

    @property
    def bits_per_character(self) -> float:
        """What a character costs: comparable between tokenizers."""
        return self.nll / self.characters / math.log(2)

    @property
    def bits_per_byte(self) -> float:
        """What a byte of UTF-8 costs: comparable between tokenizers and scripts."""
        return self.nll / self.bytes / math.log(2)

    def as_json(self) -> dict[str, Any]:
        """All of it, for programs."""
        return {
            "loss": self.loss,
            "loss_error": self.error,
            "perplexity": self.perplexity,
            "perplexity_per_character": 2**self.bits_per_character,
            "perplexity_per_byte": 2**self.bits_per_byte,
            "bits_per_character": self.bits_per_character,
            "bits_per_byte": self.bits_per_byte,
            "tokens": self.tokens,
            "characters": self.characters,
            "bytes": self.bytes,
            "unknown": self.unknown,
        }


def score_text(model: TextWriter, path: Path, progress: Callable[[int], None] | None = None) -> Likelihood:
    """How well a model foretells a text file; `progress` hears how many tokens are done."""
    return score_part(model, examine_text(path), progress)


def kept_text(model: Path, split: str) -> ExaminedText:
    """The text that a model's training config kept for validation, or names for the test."""
    chosen = choose({"validation": "validation", "test": "test"}, split, "split")
    for name in ("config.toml", "training_config.toml", "model/training_config.toml"):
        if (model / name).is_file():
            data = build(TextConfig, read_settings(model / name).get("data", {}), str(model / name))
            if chosen == "validation":
                return examine_texts(data).validation
            if data.test_text is not None:
                return examine_text(data.path(data.test_text))
    raise ConfigError(f"the model's training config names no {split} text: use --text FILE")


def score_part(model: TextWriter, text: ExaminedText, progress: Callable[[int], None] | None = None) -> Likelihood:
    """The same for a part of a text."""
    steps = opening_or_tokenising_text(text.fingerprint(), text.passages, model.tokenizer)
    tokens = driven(steps, None)
    if not len(tokens.ids):
        raise DataError(f"{text.name} holds no text that this model's tokenizer knows")
    return likelihood(model, tokens, progress)


def likelihood(model: TextWriter, text: TokenisedText, progress: Callable[[int], None] | None = None) -> Likelihood:
    """The same for a text that is tokenised."""
    windows = Tiled(text.ids, model.max_len)
    sums, counts = [], []
    for part in fixed_parts(windows, BatchConfig(max_tokens=BATCH_TOKENS)):
        assert isinstance(part.batch, WindowBatch)
        sums.append(model.surprise(part.batch.inputs, part.batch.answers))
        counts.append(part.batch.lengths)
        if progress is not None:
            progress(int(sum(map(np.sum, counts))))
    nll, tokens = np.concatenate(sums), np.concatenate(counts)
    # Windows are drawn, tokens are not: those of one window go together.
    spread = nll - tokens * nll.sum() / tokens.sum()
    error = CONFIDENCE * math.sqrt(float((spread**2).sum())) / int(tokens.sum())
    return Likelihood(float(nll.sum()), int(tokens.sum()), text.characters, text.bytes, text.unknown, error)
