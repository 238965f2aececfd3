"""Tokens in, perhaps fewer tokens out: what happens in a block between its attention and its feed-forward.

A new reduction is one class and one line in REDUCTIONS. It may ask for a witness of the attention before it. Special
tokens and padding are never merged and never dropped, and what happens to a sequence depends on that sequence alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import choose
from clearhead.nn.matching import match, two_hands
from clearhead.nn.tokens import LEAST, Tokens, Witness

UNSEEN = 1e-4
"""Shares smaller than this are all alike: nobody looked there."""


class Reduction(nn.Module):
    """No reduction: every token goes on."""

    def __init__(
        self,
        *,
        layer: int,
        num_layers: int,
        r: int = 0,
        r_last: int | None = None,
        threshold: float = 0.0,
        temperature: float = 0.1,
    ) -> None:
        super().__init__()
        self.layer, self.num_layers = layer, num_layers

    def witness(self, tokens: Tokens) -> Witness | None:
        """Who should stand by while these tokens look at each other."""
        return None

    def forward(self, tokens: Tokens, witness: Witness | None) -> Tokens:
        return tokens


class Merge(Reduction):
    """The `r` tokens that are most like another go into it (Token Merging, Bolya et al. 2022).

    Likeness is the cosine between keys, averaged over heads; a token counts for as many as it holds. From the first
    layer to the last, `r` changes evenly to `r_last`, where that is given.
    """

    def __init__(
        self,
        *,
        layer: int,
        num_layers: int,
        r: int = 0,
        r_last: int | None = None,
        threshold: float = 0.0,
        temperature: float = 0.1,
    ) -> None:
        super().__init__(layer=layer, num_layers=num_layers)
        last = r if r_last is None else r_last
        self.r = round(r + (last - r) * layer / max(1, num_layers - 1))

    def witness(self, tokens: Tokens) -> Witness | None:
        return Witness(tokens, hears=False) if self.r else None

    def forward(self, tokens: Tokens, witness: Witness | None) -> Tokens:
        if witness is None or witness.keys is None:
            return tokens
        return tokens.merged(match(witness.keys.mean(1), *two_hands(tokens.mergeable), self.r, tokens.real))

    def extra_repr(self) -> str:
        return f"r={self.r}"


class PruneHard(Reduction):
    """Tokens that were looked at less than a threshold are dropped, in training, too; the threshold stays as it is.

    It is counted in even shares, so that it means the same at every length: at 1, tokens go that got less than they
    would if all were looked at alike. It rises evenly from layer to layer, and the last has all of it.
    """

    threshold: Tensor

    def __init__(
        self,
        *,
        layer: int,
        num_layers: int,
        r: int = 0,
        r_last: int | None = None,
        threshold: float = 0.0,
        temperature: float = 0.1,
    ) -> None:
        super().__init__(layer=layer, num_layers=num_layers)
        self.temperature = temperature
        self._begin_at(torch.full((1,), threshold * (layer + 1) / num_layers))

    def _begin_at(self, threshold: Tensor) -> None:
        self.register_buffer("threshold", threshold)

    def witness(self, tokens: Tokens) -> Witness | None:
        return Witness(tokens, hears=True) if self.threshold.item() > 0 else None

    def forward(self, tokens: Tokens, witness: Witness | None) -> Tokens:
        return tokens if witness is None else self.dropping(tokens, witness)

    def dropping(self, tokens: Tokens, witness: Witness) -> Tokens:
        """What is left when all below the threshold are gone; the one that was looked at most always stays."""
        share = self.shares(tokens, witness)
        free = tokens.mergeable
        most = share.masked_fill(~free, -torch.inf).amax(1, keepdim=True)
        gone = free & (share < self.threshold) & (share < most)
        return tokens.only(~gone if tokens.real is None else tokens.real & ~gone)

    @staticmethod
    def shares(tokens: Tokens, witness: Witness) -> Tensor:
        """How much each token was looked at, in even shares."""
        return witness.received * tokens.numbers[:, None]

    def extra_repr(self) -> str:
        return f"threshold={self.threshold.item():.3g}"


class Prune(PruneHard):
    """The same with thresholds that are learnt (Learned Token Pruning, Kim et al. 2022).

    While training nothing is dropped: a token below the threshold counts for less and less, and what the others cost
    is summed up as the tokens' price. In use tokens are dropped for good. The gate is a sigmoid of the logarithms'
    difference, so that a threshold of zero lets everything through, to the bit.
    """

    def _begin_at(self, threshold: Tensor) -> None:
        self.threshold = nn.Parameter(threshold)

    def witness(self, tokens: Tokens) -> Witness | None:
        return Witness(tokens, hears=True) if self.training else super().witness(tokens)

    def forward(self, tokens: Tokens, witness: Witness | None) -> Tokens:
        if not self.training or witness is None:
            return super().forward(tokens, witness)
        free, share = tokens.mergeable, self.shares(tokens, witness).clamp(min=UNSEEN)
        gate = torch.sigmoid((share.log() - self.threshold.clamp(min=LEAST).log()) / self.temperature)
        gate = torch.where(free, gate, 1.0)
        thinner = tokens._replace(counts=gate if tokens.counts is None else gate * tokens.counts)
        came_in = tokens._replace(counts=None).numbers
        paid = thinner.numbers / came_in.clamp(min=1) / self.num_layers
        return thinner._replace(price=paid if tokens.price is None else tokens.price + paid)


def build_reductions(
    kind: str,
    num_layers: int,
    *,
    r: int = 0,
    r_last: int | None = None,
    threshold: float = 0.0,
    temperature: float = 0.1,
) -> list[Reduction]:
    """One reduction for each layer of a stack."""
    reduction = choose(REDUCTIONS, kind, "reduction")
    how: dict[str, Any] = {"r": r, "r_last": r_last, "threshold": threshold, "temperature": temperature}
    return [reduction(layer=layer, num_layers=num_layers, **how) for layer in range(num_layers)]


REDUCTIONS: dict[str, type[Reduction]] = {
    "none": Reduction,
    "merge": Merge,
    "prune": Prune,
    "prune_hard": PruneHard,
}
