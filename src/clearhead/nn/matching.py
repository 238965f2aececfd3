"""Tokens in, fewer tokens out: which of them are alike, how those become one, and how one becomes many again.

Bipartite soft matching (Bolya et al. 2022, "Token Merging"): tokens are dealt into two hands, each token of the first
finds the most similar one of the second, and the most similar pairs become one. `around` merges before a sublayer and
undoes it afterwards, as image generators need it (Bolya and Hoffman 2023).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


def rows_at(
    x: Float[Tensor, "batch time *features"], places: Int[Tensor, "batch some"]
) -> Float[Tensor, "batch some *features"]:
    """Some tokens of each sequence, in the order given."""
    # Whole rows of one long list: many times faster on a CPU than gathering feature by feature.
    return x.flatten(0, 1).index_select(0, _in_one_list(places, x.shape[1])).view(*places.shape, *x.shape[2:])


def _in_one_list(places: Int[Tensor, "batch some"], time: int) -> Int[Tensor, "all"]:
    first = torch.arange(0, len(places) * time, time, device=places.device)
    return (places + first[:, None]).flatten()


class Move(NamedTuple):
    """Where tokens go when some of them leave, and the others move together."""

    places: Int[Tensor, "batch fewer"]
    """The places that the tokens that stay come from, in order; shorter rows are filled up with other places ..."""
    real: Bool[Tensor, "batch fewer"]
    """... where this is False."""
    into: Int[Tensor, "batch time"]
    """The new place of each token; -1 if it has none."""


def move(kept: Bool[Tensor, "batch time"]) -> Move:
    """Move the tokens that are kept together."""
    most = int(kept.sum(1).max()) if kept.numel() else 0
    places = kept.byte().argsort(dim=1, descending=True, stable=True)[:, :most]
    return Move(places, kept.gather(1, places), torch.where(kept, kept.cumsum(1) - 1, -1))


class Matching(NamedTuple):
    """Which tokens become one, and where each goes."""

    move: Move
    """A token that goes into another has the new place of that one."""
    source: Int[Tensor, "batch merged"]
    """The tokens that go into others; shorter rows are filled up with any ..."""
    target: Int[Tensor, "batch merged"]
    """... and those they go into ..."""
    counts: Bool[Tensor, "batch merged"]
    """... where this is False."""

    def merge(
        self, x: Float[Tensor, "batch time dim"], sizes: Float[Tensor, "batch time"] | None = None
    ) -> tuple[Float[Tensor, "batch fewer dim"], Float[Tensor, "batch fewer"]]:
        """Means, weighted by how many tokens each holds already, and how many each holds now."""
        sizes = x.new_ones(x.shape[:2]) if sizes is None else sizes
        places, onto = self.move.places, self.move.into.gather(1, self.target).clamp(min=0)
        added = sizes.gather(1, self.source) * self.counts
        grown = sizes.gather(1, places).scatter_add(1, onto, added)
        # Each pulls the mean by its share: so a token that nothing goes into stays what it was, to the bit.
        pull = (rows_at(x, self.source) - rows_at(x, self.target)) * (added / grown.gather(1, onto))[..., None]
        mixed = rows_at(x, places)
        mixed.view(-1, x.shape[2]).index_add_(0, _in_one_list(onto, places.shape[1]), pull.flatten(0, 1))
        return mixed, grown

    def unmerge(self, x: Float[Tensor, "batch fewer dim"]) -> Float[Tensor, "batch time dim"]:
        """Every token again, each as the one it went into."""
        return rows_at(x, self.move.into.clamp(min=0))


def match(
    likeness: Float[Tensor, "batch time dim"],
    sources: Bool[Tensor, "batch time"],
    targets: Bool[Tensor, "batch time"],
    r: int,
    real: Bool[Tensor, "batch time"] | None = None,
) -> Matching:
    """Let the `r` sources of each sequence that are most like a target go into it; fewer where there are fewer."""
    with torch.no_grad():
        given, taking = move(sources), move(targets)
        possible = torch.where(targets.any(1), sources.sum(1).clamp(max=r), 0)
        most = int(possible.max()) if len(possible) else 0
        if most == 0:
            nothing = given.places[:, :0]
            return Matching(move(_real(sources, real)), nothing, nothing, nothing.bool())
        direction = F.normalize(likeness.detach().float(), dim=-1)
        alike = rows_at(direction, given.places) @ rows_at(direction, taking.places).mT
        best, partner = alike.masked_fill(~taking.real[:, None], -torch.inf).max(-1)
        best = best.masked_fill(~given.real, -torch.inf)
        chosen = best.argsort(dim=1, descending=True, stable=True)[:, :most]
        counts = torch.arange(most, device=chosen.device) < possible[:, None]
        source = given.places.gather(1, chosen)
        target = taking.places.gather(1, partner.gather(1, chosen))
        gone = torch.zeros_like(sources).scatter(1, source, counts)
        moved = move(_real(sources, real) & ~gone)
        onto = torch.where(counts, moved.into.gather(1, target), moved.into.gather(1, source))
        return Matching(moved._replace(into=moved.into.scatter(1, source, onto)), source, target, counts)


def _real(like: Bool[Tensor, "batch time"], real: Bool[Tensor, "batch time"] | None) -> Bool[Tensor, "batch time"]:
    return torch.ones_like(like) if real is None else real


def two_hands(
    mergeable: Bool[Tensor, "batch time"],
) -> tuple[Bool[Tensor, "batch time"], Bool[Tensor, "batch time"]]:
    """Deal tokens into two hands in turn; those that must not merge go into neither, and change nobody's turn.

    >>> first, second = two_hands(torch.tensor([[False, True, True, False, True]]))
    >>> first.int().tolist(), second.int().tolist()
    ([[0, 1, 0, 0, 1]], [[0, 0, 1, 0, 0]])
    """
    is_even = mergeable.cumsum(1) % 2 == 1
    return mergeable & is_even, mergeable & ~is_even


def corners(height: int, width: int, stride: int = 2) -> Bool[Tensor, "{height}*{width}"]:
    """One place in each square of `stride` by `stride`: the targets that suit a picture whose tokens come in rows.

    >>> corners(2, 4).int().tolist()
    [1, 0, 1, 0, 0, 0, 0, 0]
    """
    down, across = torch.arange(height) % stride == 0, torch.arange(width) % stride == 0
    return (down[:, None] & across[None, :]).flatten()


def around(
    x: Float[Tensor, "batch time dim"],
    sublayer: Callable[[Tensor], Tensor],
    targets: Bool[Tensor, "time"],
    r: int,
) -> Float[Tensor, "batch time dim"]:
    """Let a sublayer see `r` tokens fewer: merged before it, and each given its holder's answer after it."""
    wanted = targets.to(x.device).expand(x.shape[:2])
    matching = match(x, ~wanted, wanted, r)
    return matching.unmerge(sublayer(matching.merge(x)[0]))
