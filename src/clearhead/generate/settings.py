"""What a user may choose about generation in, one frozen record out; importing it does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from clearhead.config import Record, one_of

STRATEGY_NAMES = ("greedy", "beam", "sample")
"""The names in every table of strategies; the tables themselves need torch, or numpy."""


class GenerationConfig(Record):
    """How to turn a model's probabilities into text."""

    strategy: Annotated[str, one_of(STRATEGY_NAMES, "strategy")] = "beam"
    """How the next token is chosen: greedy, beam or sample."""
    beam_size: int = Field(5, ge=1)
    """Hypotheses kept side by side by beam search; 1 is greedy."""
    patience: float = Field(1.0, ge=1, le=10)
    """Beam search: an input is decided when beam_size · patience of its hypotheses are finished; more finds better ones
    and takes longer (Kasai et al. 2022, arXiv 2204.05424)."""
    nbest: int = Field(1, ge=1)
    """Results for each input, best first: the best hypotheses of a beam, or that many samples without doubles."""
    length_penalty: float = Field(1.0, ge=-4, le=4)
    """Hypotheses are compared by log-probability / length ** length_penalty, the length counting </s>:
    0 compares plain sums and favours short results, 1 compares the mean per token, more favours long ones."""
    min_len: int = Field(1, ge=0)
    """Fewest tokens of a result, not counting </s>."""
    max_len: int | None = Field(None, ge=1)
    """Most tokens of a result, not counting </s>; if not given, only the source length and the model set the limit."""
    max_len_ratio: float = Field(3.0, ge=0, allow_inf_nan=False)
    """A result has at most max_len_ratio · source tokens + max_len_extra tokens."""
    max_len_extra: int = Field(30, ge=1)
    """See max_len_ratio."""
    no_repeat_ngram: int = Field(0, ge=0)
    """No sequence of this many tokens may come twice in one result; 0 is off."""
    loop_guard: bool = True
    """Stop a phrase that repeats without end."""
    stop: list[str] = Field([], max_length=16)
    """A result ends before the first of these texts that it would say."""
    temperature: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Sampling: below 1 is more careful, above 1 more daring, 0 is greedy."""
    top_k: int = Field(0, ge=0)
    """Sampling: draw from this many likeliest tokens only; 0 is off."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sampling: draw from the likeliest tokens that together reach this probability; 1 is off."""
    min_p: float = Field(0.0, ge=0, le=1)
    """Sampling: draw from tokens at least this likely relative to the likeliest; 0 is off."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Sampling: the same seed gives the same results."""

    @field_validator("stop")
    @classmethod
    def _some_text(cls, stop: list[str]) -> list[str]:
        if "" in stop:
            raise ValueError("an empty text is in every other: say what to stop at")
        return stop

    @model_validator(mode="after")
    def _possible(self) -> GenerationConfig:
        if self.strategy == "greedy" and self.nbest > 1:
            raise ValueError(f"greedy gives one result, not nbest = {self.nbest}: use beam or sample")
        if self.strategy == "beam" and self.nbest > self.beam_size:
            raise ValueError(f"nbest = {self.nbest} needs a beam at least as large, not beam_size = {self.beam_size}")
        if self.max_len is not None and self.min_len > self.max_len:
            raise ValueError(f"min_len = {self.min_len} is more than max_len = {self.max_len}")
        return self

    @property
    def enough(self) -> int:
        """How many finished hypotheses of one input end a beam search.

        >>> GenerationConfig(beam_size=5).enough, GenerationConfig(beam_size=5, patience=1.5).enough
        (5, 8)
        """
        return round(self.beam_size * self.patience)

    @property
    def hypotheses(self) -> int:
        """How many hypotheses of one input are followed side by side, at most.

        >>> GenerationConfig(beam_size=5).hypotheses, GenerationConfig(strategy="greedy").hypotheses
        (6, 1)
        """
        return {"beam": self.beam_size + 1, "sample": self.nbest}.get(self.strategy, 1)

    def max_lens(self, source_lens: Sequence[int], room: int) -> list[int]:
        """The most tokens of each row's result, given the length of its source and the `room` the model has for any.

        >>> GenerationConfig(max_len_ratio=2.0, max_len_extra=3).max_lens([1, 5, 500], room=255)
        [5, 13, 255]
        >>> GenerationConfig(max_len_ratio=1e308).max_lens([100], room=255)
        [255]
        """
        longest = room if self.max_len is None else min(room, self.max_len)
        # Whoever wants no limit may say a ratio of 1e308.
        scaled = (int(min(longest, self.max_len_ratio * length)) for length in source_lens)
        return [min(longest, length + self.max_len_extra) for length in scaled]
