"""One result of a search, whatever searched for it; importing it does not import torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """One result of a search.

    Its probabilities are the model's own: over the whole vocabulary, before anything was forbidden or filtered.
    """

    ids: tuple[int, ...]
    """Without <s> and </s>."""
    log_prob: float
    """The sum of token_log_probs."""
    score: float
    """The log-probability normalised for length: what hypotheses are compared by."""
    token_log_probs: tuple[float, ...]
    """One for each of ids, and one for </s> if it came; none at all from an engine that does not tell them."""
    finished: bool
    """False if it was cut off at the longest length; such a one ranks behind all that are finished."""

    @property
    def said_end(self) -> bool:
        """Whether it ended with </s>, and not where it was told to stop or at the longest length."""
        return self.finished and len(self.token_log_probs) > len(self.ids)
