"""A language model and a text in, how well it foretells the text out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.config import build
from clearhead.data.batches import BatchConfig, fixed_parts
from clearhead.data.corpus import driven
from clearhead.data.naming import read_settings
from clearhead.data.windows import (
    Random,
    TextConfig,
    Tiled,
    TokenisedText,
    WindowBatch,
    opening_or_tokenising_text,
)
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
    error: float | None
    """Half of the 95 % confidence interval of the loss, over windows; None if there is only one."""

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
    return likelihood(model, tokens_of(model, text), progress)


def tokens_of(model: TextWriter, text: ExaminedText) -> TokenisedText:
    """A text, or a part of one, as the model reads it."""
    tokens = driven(opening_or_tokenising_text(text.fingerprint(), text.passages, model.tokenizer), None)
    if not len(tokens.ids):
        raise DataError(f"{text.name} holds no text that this model's tokenizer knows")
    return tokens


def likelihood(model: TextWriter, text: TokenisedText, progress: Callable[[int], None] | None = None) -> Likelihood:
    """The same for a text that is tokenised."""
    nll, tokens = _surprises(model, Tiled(text.ids, model.max_len), progress)
    error = _error(nll, tokens) if len(nll) > 1 else None
    return Likelihood(float(nll.sum()), int(tokens.sum()), text.characters, text.bytes, text.unknown, error)


@dataclass(frozen=True)
class Estimate:
    """The loss of a text as somebody else's program estimates it."""

    protocol: str
    loss: float
    error: float
    """Half of its 95 % confidence interval, over windows."""
    windows: int
    length: int
    """Tokens in each."""


ESTIMATES = {"nanogpt": 20 * 12}
"""How many windows are drawn: nanogpt is 20 batches of 12, as its README has it for a CPU."""


def estimate_like(protocol: str, model: TextWriter, text: TokenisedText) -> Estimate:
    """The mean loss of windows that begin anywhere in a text, as many and as long as the protocol says."""
    count = choose(ESTIMATES, protocol, "protocol of language models")
    nll, tokens = _surprises(model, Random(text.ids, model.max_len, count))
    return Estimate(protocol, float(nll.sum() / tokens.sum()), _error(nll, tokens), count, int(tokens[0]))


def _surprises(
    model: TextWriter, windows: Tiled | Random, progress: Callable[[int], None] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """What each window costs, and how many tokens it asks for."""
    sums, counts = [], []
    for part in fixed_parts(windows, BatchConfig(max_tokens=BATCH_TOKENS)):
        assert isinstance(part.batch, WindowBatch)
        sums.append(model.surprise(part.batch.inputs, part.batch.answers))
        counts.append(part.batch.lengths)
        if progress is not None:
            progress(int(sum(map(np.sum, counts))))
    return np.concatenate(sums), np.concatenate(counts)


def _error(nll: NDArray[np.float64], tokens: NDArray[np.int64]) -> float:
    # Windows are drawn, tokens are not: those of one window go together.
    spread = nll - tokens * nll.sum() / tokens.sum()
    return CONFIDENCE * math.sqrt(float((spread**2).sum())) / int(tokens.sum())
