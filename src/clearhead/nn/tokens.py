"""The tokens of a stack under way: the stream itself, and what there is to know of tokens that became fewer.

Where nothing was merged or dropped all of that is None, and costs nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clearhead.nn.gapless import Gapless
from clearhead.nn.matching import Matching, Move, move, rows_at

LEAST = 1e-30
"""What a token that counts for nothing is taken for, so that logarithms and their gradients stay finite."""


class Tokens(NamedTuple):
    """A residual stream between two layers."""

    x: Float[Tensor, "batch time dim"]
    real: Bool[Tensor, "batch time"] | None = None
    """Which are not padding; None if all are."""
    special: Bool[Tensor, "batch time"] | None = None
    """Which are never merged or dropped: a class token, for example."""
    counts: Float[Tensor, "batch time"] | None = None
    """For how many tokens each counts, in attention and in means: more than one if it holds several, less while it is
    being learnt whether to drop it. None if each counts for one."""
    holder: Int[Tensor, "batch input"] | None = None
    """Where each token that came in is now, alone or in another; -1 if it was dropped, or is padding."""
    at: Float[Tensor, "batch time"] | None = None
    """The position of each; None if they stand at 0, 1, 2, … as they came."""
    price: Float[Tensor, "batch"] | None = None
    """What share of the tokens was kept so far, summed over layers, while that is being learnt."""
    gapless: Gapless | None = None
    """How they stand in their sequences where `x` has them one after the other, without padding."""

    def closed(self, sequences: int) -> Tokens:
        """The same without padding, and with so many sequences when they are laid out again."""
        real = self.x.new_ones(self.x.shape[:2], dtype=torch.bool) if self.real is None else self.real
        gapless = Gapless(real, sequences)
        return self._replace(x=gapless.closed(self.x), real=None, gapless=gapless)

    def opened(self) -> Tokens:
        """The same in their sequences, if they are not, with zeros for padding."""
        if self.gapless is None:
            return self
        return self._replace(x=self.gapless.opened(self.x), real=self.gapless.real, gapless=None)

    @property
    def visible(self) -> Bool[Tensor, "sequences time"] | None:
        """Which may be looked at, in their sequences; None if all may."""
        return self.real if self.gapless is None else self.gapless.visible

    @property
    def bias(self) -> Float[Tensor, "batch 1 1 time"] | None:
        """What is added to the scores of attention so that each token is seen as often as it counts."""
        return None if self.counts is None else self.counts.clamp(min=LEAST).log()[:, None, None, :]

    @property
    def numbers(self) -> Float[Tensor, "batch"]:
        """How many tokens there are in each sequence, as they count."""
        return self.present.sum(1)

    @property
    def present(self) -> Float[Tensor, "batch time"]:
        """For how many tokens each counts, padding for none."""
        counts = self.x.new_ones(self.x.shape[:2], dtype=self.fine) if self.counts is None else self.counts
        return counts if self.real is None else counts * self.real

    @property
    def fine(self) -> torch.dtype:
        """The type in which tokens are counted: that of the stream, but not a narrow one."""
        return torch.promote_types(self.x.dtype, torch.float)

    @property
    def mergeable(self) -> Bool[Tensor, "batch time"]:
        """Which tokens are neither padding nor special."""
        free = self.x.new_ones(self.x.shape[:2], dtype=torch.bool)
        free = free if self.real is None else free & self.real
        return free if self.special is None else free & ~self.special

    def placed(self) -> Float[Tensor, "batch time"]:
        """The position of each."""
        if self.at is not None:
            return self.at
        return torch.arange(self.x.shape[1], device=self.x.device, dtype=self.fine).expand(self.x.shape[:2])

    def merged(self, matching: Matching) -> Tokens:
        """The tokens after some have gone into others."""
        if not matching.source.shape[1]:
            return self
        at, counts = matching.merge(self.placed()[..., None], self.counts)
        x, _ = matching.merge(self.x, None if self.counts is None else self.counts.to(self.x.dtype))
        return self._moved(matching.move)._replace(x=x, counts=counts, at=at[..., 0])

    def spread(self) -> Float[Tensor, "batch input dim"]:
        """Every token that came in: each as the one that it is in, zeros for one that was dropped."""
        if self.holder is None:
            return self.x
        return rows_at(self.x, self.holder.clamp(min=0)).masked_fill((self.holder < 0)[..., None], 0.0)

    def only(self, kept: Bool[Tensor, "batch time"]) -> Tokens:
        """The tokens that are kept, moved together; rows that are left shorter are padded."""
        if torch.equal(kept, torch.ones_like(kept) if self.real is None else self.real):
            return self
        moved = move(kept)
        return self._moved(moved)._replace(
            x=rows_at(self.x, moved.places),
            counts=None if self.counts is None else self.counts.gather(1, moved.places),
            at=self.placed().gather(1, moved.places),
        )

    def _moved(self, moved: Move) -> Tokens:
        """Which of the new tokens are what, and where those that came in are now."""
        return self._replace(
            real=None if bool(moved.real.all()) else moved.real,
            special=None if self.special is None else self.special.gather(1, moved.places) & moved.real,
            holder=moved.into if self.holder is None else _through(self.holder, moved.into),
        )


def first_and_last(
    x: Float[Tensor, "batch time dim"], real: Bool[Tensor, "batch time"] | None = None
) -> Bool[Tensor, "batch time"]:
    """Where each sequence begins and ends: the control tokens of a text, if it stands between such.

    >>> first_and_last(torch.zeros(2, 4, 1), torch.tensor([[True] * 4, [True, True, True, False]])).int().tolist()
    [[1, 0, 0, 1], [1, 0, 1, 0]]
    """
    real = x.new_ones(x.shape[:2], dtype=torch.bool) if real is None else real
    before = torch.zeros_like(real)
    before[:, 1:] = real[:, :-1]
    return last(x, real) | real & ~before


def last(
    x: Float[Tensor, "batch time dim"], real: Bool[Tensor, "batch time"] | None = None
) -> Bool[Tensor, "batch time"]:
    """Where each sequence ends: the control token of a text that begins without one.

    >>> last(torch.zeros(2, 4, 1), torch.tensor([[True] * 4, [True, True, True, False]])).int().tolist()
    [[0, 0, 0, 1], [0, 0, 1, 0]]
    """
    real = x.new_ones(x.shape[:2], dtype=torch.bool) if real is None else real
    after = torch.zeros_like(real)
    after[:, :-1] = real[:, 1:]
    return real & ~after


def _through(holder: Int[Tensor, "batch input"], into: Int[Tensor, "batch time"]) -> Int[Tensor, "batch input"]:
    return torch.where(holder >= 0, into.gather(1, holder.clamp(min=0)), -1)


class Witness:
    """Stands by while tokens look at each other, and can say afterwards which keys they had and who was looked at."""

    def __init__(self, tokens: Tokens, *, hears: bool) -> None:
        self.hears = hears
        """Whether it must be told the weights, which not every kernel has."""
        self.keys: Float[Tensor, "batch kv_heads time head_dim"] | None = None
        self._share = tokens.present / tokens.numbers[:, None].clamp(min=LEAST)
        self._num_heads = 1
        self._received: list[Float[Tensor, "some time"]] = []

    def see(self, keys: Float[Tensor, "batch kv_heads time head_dim"], num_heads: int) -> None:
        """Take note of the keys, and of how many heads are going to look."""
        self.keys, self._num_heads = keys, num_heads

    def hear(self, rows: slice, weights: Float[Tensor, "some time time"]) -> None:
        """Take note of what some heads, in order, looked at; they are counted through all sequences."""
        heads = torch.arange(rows.start, rows.start + len(weights), device=weights.device)
        sequences = heads // self._num_heads
        # A sum over hundreds of small numbers: not in the narrow format, whatever the products are computed in.
        with torch.autocast(weights.device.type, enabled=False):
            seen = torch.bmm(self._share[sequences, None].to(weights.dtype), weights)[:, 0]
        self._received.append(seen.to(self._share.dtype))

    @property
    def received(self) -> Float[Tensor, "batch time"]:
        """The mean weight that each token got, over heads and over the tokens that looked, padding left out."""
        return torch.cat(self._received).unflatten(0, (-1, self._num_heads)).mean(1)
