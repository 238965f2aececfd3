"""Hidden vectors and labels in, the summed loss out: sums, so that accumulation can divide by all real tokens.

The output layer is applied here, to real positions only: padding costs nothing. A new loss is one class and one line in
LOSSES.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn


class LossSum(NamedTuple):
    """Sums over tokens: what is minimised, and the plain negative log-likelihood that perplexity is made of."""

    total: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    tokens: int


class Loss(nn.Module, ABC):
    """What all losses share: the output layer, and the log-probability of the right label."""

    def __init__(self, smoothing: float = 0.0, pad_id: int = 2) -> None:
        super().__init__()
        self.smoothing, self.pad_id = smoothing, pad_id

    def forward(self, hidden: Float[Tensor, "tokens dim"], labels: Int[Tensor, "tokens"], output: nn.Module) -> LossSum:
        logits = output(hidden).float()
        log_norm = logits.logsumexp(-1)
        nll = log_norm - logits.gather(-1, labels[:, None])[:, 0]
        return LossSum(self.smoothed(logits, log_norm, nll).sum(), nll.detach().sum(), len(labels))

    @abstractmethod
    def smoothed(
        self,
        logits: Float[Tensor, "tokens vocab"],
        log_norm: Float[Tensor, "tokens"],
        nll: Float[Tensor, "tokens"],
    ) -> Float[Tensor, "tokens"]:
        """The loss of each token."""


class CrossEntropy(Loss):
    """Cross-entropy against a label that gives ε to the whole vocabulary evenly, as torch defines it."""

    def smoothed(
        self,
        logits: Float[Tensor, "tokens vocab"],
        log_norm: Float[Tensor, "tokens"],
        nll: Float[Tensor, "tokens"],
    ) -> Float[Tensor, "tokens"]:
        if self.smoothing == 0.0:
            return nll
        return (1 - self.smoothing) * nll + self.smoothing * (log_norm - logits.mean(-1))


class SmoothedKl(Loss):
    """Kullback-Leibler divergence from a label with ε/(V−2) on each entry but itself and padding (the notes' form)."""

    def smoothed(
        self,
        logits: Float[Tensor, "tokens vocab"],
        log_norm: Float[Tensor, "tokens"],
        nll: Float[Tensor, "tokens"],
    ) -> Float[Tensor, "tokens"]:
        if self.smoothing == 0.0:
            return nll
        others = logits.shape[1] - 2
        keep, share = 1 - self.smoothing, self.smoothing / others
        everything = logits.shape[1] * log_norm - logits.sum(-1)
        padding = log_norm - logits[:, self.pad_id]
        entropy = keep * math.log(keep) + self.smoothing * math.log(share)
        return entropy + keep * nll + share * (everything - nll - padding)


LOSSES: dict[str, type[Loss]] = {"cross_entropy": CrossEntropy, "kl": SmoothedKl}
