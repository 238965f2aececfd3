"""Attention weights and their tokens in, numbers out that say what a head does, and what all heads did together.

A new measure is one function of a `Sight` and one line in MEASURES; one that names a habit also gets a line in HABITS.
Only positions with a choice are counted: the first token of a decoder can look nowhere but at itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from clearhead.inspection.record import SIDES, Look, Tape
from clearhead.inspection.tokens import Token

CLEAR_SHARE = 0.5
"""A head has a habit if it gives at least this share of its weight to it ..."""
CLEAR_SPREAD = 0.9
"""... and looks everywhere if its entropy comes at least this near to the highest."""
CLEAR_DIAGONAL = 0.75
CLEAR_BROAD = 0.6
"""What is clear of the habits that say less."""
WORTH_A_LINE = 0.5
"""Source words that get at least this part of the weight of the strongest are aligned as well."""
UNSEEN = 0.5
"""A source word is unseen if no target word gives it more than this part of an even share."""


class Sight(NamedTuple):
    """What the heads of one layer looked at in one sentence."""

    weights: Float[Tensor, "heads query key"]
    allowed: Bool[Tensor, "query key"]
    keys: Sequence[Token]
    is_own: bool
    """Whether the tokens look at their own sequence, so that position i of one is position i of the other."""

    @property
    def choosing(self) -> Bool[Tensor, "query"]:
        """The positions that can look at more than one place."""
        return self.allowed.sum(-1) > 1


Measure: TypeAlias = Callable[[Sight], Tensor]


def sight(look: Look, tokens: dict[str, list[Token]], row: int = 0) -> Sight:
    """What a look says about one sentence of its batch."""
    sides = SIDES.get(look.kind, ("tokens", "tokens"))
    weights = look.weights[row].double()
    allowed = torch.ones(weights.shape[1:], dtype=torch.bool, device=weights.device)
    if look.allowed is not None:
        # The mask is the same for all heads.
        allowed = look.allowed[row % len(look.allowed), 0].expand_as(allowed)
    known = tokens.get(sides[1], [Token("", place) for place in range(weights.shape[2])])
    return Sight(weights, allowed, known, is_own=look.kind != "cross")


def entropy(seen: Sight) -> Float[Tensor, "heads"]:
    """How evenly a head spreads its look: 0 is one place, 1 is everywhere alike."""
    rows = seen.weights[:, seen.choosing]
    most = seen.allowed[seen.choosing].sum(-1).double().log()
    return _mean(-torch.xlogy(rows, rows).sum(-1) / most)


def distance(seen: Sight) -> Float[Tensor, "heads"]:
    """How many tokens away a head looks, on average."""
    query_len, key_len = seen.allowed.shape
    steps = torch.arange(key_len)[None, :] - torch.arange(query_len)[:, None]
    apart = steps.abs().to(seen.weights)
    return _mean((seen.weights * apart).sum(-1)[:, seen.choosing])


def itself(seen: Sight) -> Float[Tensor, "heads"]:
    """The share of weight on the token's own position."""
    return _share(seen, 0)


def previous(seen: Sight) -> Float[Tensor, "heads"]:
    """The share of weight on the position before."""
    return _share(seen, -1)


def following(seen: Sight) -> Float[Tensor, "heads"]:
    """The share of weight on the position after."""
    return _share(seen, 1)


def near(seen: Sight) -> Float[Tensor, "heads"]:
    """The share of weight on the token's own position and the two beside it, where there are others to look at."""
    reach = torch.ones_like(seen.allowed).tril(1).triu(-1)
    far_sighted = seen.allowed.sum(-1) > 3
    return _mean((seen.weights * reach).sum(-1)[:, far_sighted])


def first(seen: Sight) -> Float[Tensor, "heads"]:
    """The share of weight on the first token."""
    return _on(seen, [0])


def last(seen: Sight) -> Float[Tensor, "heads"]:
    """The share of weight on the last token, which for a source is </s>; no place for a decoder, which moves on."""
    if seen.is_own and not bool(seen.allowed[0, -1]):
        return seen.weights.new_zeros(len(seen.weights))
    return _on(seen, [len(seen.keys) - 1])


def punctuation(seen: Sight) -> Float[Tensor, "heads"]:
    """The share of weight on punctuation marks."""
    return _on(seen, [place for place, token in enumerate(seen.keys) if token.is_punctuation])


def diagonal(seen: Sight) -> Float[Tensor, "heads"]:
    """How near to the diagonal a head looks: 1 is on it, 0 is no nearer than looking everywhere alike."""
    apart = _from_diagonal(seen)
    found = _mean((seen.weights * apart).sum(-1)[:, seen.choosing])
    even = seen.allowed / seen.allowed.sum(-1, keepdim=True).clamp(min=1)
    chance = _mean((even * apart).sum(-1)[None, seen.choosing])
    return (1 - found / chance).clamp(0, 1) if float(chance) > 0 else torch.zeros_like(found)


def peak(seen: Sight) -> Float[Tensor, "heads"]:
    """The share of weight on the one place that gets most of it."""
    return _mean(seen.weights[:, seen.choosing].amax(-1))


def _from_diagonal(seen: Sight) -> Float[Tensor, "query key"]:
    """How far each cell is from the diagonal, where both sides are one long; for own sequences, in equal steps."""
    query_len, key_len = seen.allowed.shape
    ends = (query_len, key_len)
    query, key = (torch.arange(end, device=seen.weights.device).double() / max(end - 1, 1) for end in ends)
    return (key[None, :] - query[:, None]).abs()


def _share(seen: Sight, offset: int) -> Float[Tensor, "heads"]:
    """The share of weight on the position `offset` away, over the positions that could look there."""
    cells = torch.zeros_like(seen.allowed)
    cells.diagonal(offset).fill_(True)
    cells &= seen.allowed & seen.choosing[:, None]
    return _mean(seen.weights[:, cells])


def _on(seen: Sight, places: list[int]) -> Float[Tensor, "heads"]:
    """The share of weight on some keys; positions before them count too, or the last one alone would name a head."""
    return _mean(seen.weights[:, seen.choosing][:, :, places].sum(-1))


def _mean(values: Float[Tensor, "heads some"]) -> Float[Tensor, "heads"]:
    return values.mean(-1) if values.shape[-1] else values.new_zeros(len(values))


MEASURES: dict[str, Measure] = {
    "entropy": entropy,
    "distance": distance,
    "self": itself,
    "previous": previous,
    "next": following,
    "near": near,
    "first": first,
    "last": last,
    "punctuation": punctuation,
    "diagonal": diagonal,
    "peak": peak,
}
OWN_ONLY = ("distance", "self", "previous", "next", "near")
"""Measures that compare positions of one sequence, and mean nothing between two."""
HABITS: dict[str, float] = {
    "previous": CLEAR_SHARE,
    "next": CLEAR_SHARE,
    "self": CLEAR_SHARE,
    "punctuation": CLEAR_SHARE,
    "first": CLEAR_SHARE,
    "last": CLEAR_SHARE,
    "diagonal": CLEAR_DIAGONAL,
}
"""The measures that name a head, each with what is clear; where several are, the first with the highest share."""
BROAD: dict[str, float] = {"near": CLEAR_BROAD, "peak": CLEAR_BROAD}
"""The measures that name a head which has none of those habits, in the order in which they are asked."""


class Label(NamedTuple):
    """What a head does, in one word of HABITS or BROAD, or `everywhere`."""

    code: str
    share: float


def measured(seen: Sight) -> list[dict[str, float]]:
    """Every measure that makes sense here, for each head."""
    wanted = {name: measure for name, measure in MEASURES.items() if seen.is_own or name not in OWN_ONLY}
    columns = {name: measure(seen).tolist() for name, measure in wanted.items()}
    return [{name: column[head] for name, column in columns.items()} for head in range(len(seen.weights))]


def label(measures: dict[str, float]) -> Label | None:
    """What a head does, if its measures say so clearly.

    >>> label({"entropy": 0.2, "previous": 0.9, "first": 0.6})
    Label(code='previous', share=0.9)
    >>> label({"entropy": 0.97, "previous": 0.5}), label({"entropy": 0.6, "previous": 0.3})
    (Label(code='everywhere', share=0.97), None)
    >>> label({"entropy": 0.4, "previous": 0.4, "near": 0.8, "peak": 0.7})
    Label(code='near', share=0.8)
    """
    if measures.get("entropy", 0.0) >= CLEAR_SPREAD:
        return Label("everywhere", measures["entropy"])
    # Within one sequence the diagonal is the token itself and what is near, which other habits say better.
    named = {code: least for code, least in HABITS.items() if code != "diagonal" or "self" not in measures}
    clear = _clear(measures, named)
    return max(clear, key=lambda habit: habit.share) if clear else next(iter(_clear(measures, BROAD)), None)


def _clear(measures: dict[str, float], named: dict[str, float]) -> list[Label]:
    return [Label(code, measures[code]) for code, least in named.items() if measures.get(code, 0.0) >= least]


def rollout(layers: Iterable[Float[Tensor, "_ time time"]]) -> Float[Tensor, "time time"] | None:
    """Where each position's content came from after all layers: half from itself, half from where its heads looked.

    Abnar and Zuidema (2020). None if there are no layers.
    """
    rolled = None
    for weights in layers:
        own = torch.eye(weights.shape[1], dtype=weights.dtype, device=weights.device)
        mixed = (own + weights.mean(0)) / 2 if len(weights) else own
        rolled = mixed if rolled is None else mixed @ rolled
    return rolled


def words_looked_at(
    weights: Float[Tensor, "heads target source"], target: Sequence[Token], source: Sequence[Token]
) -> Float[Tensor, "target_words source_words"]:
    """The mean look of cross-attention heads, from words to words; control tokens look at and get nothing.

    Each row of a target word sums to 1; rows and columns of control tokens are zero.
    """
    mean = weights.double().mean(0)
    to_words = _membership(source).to(mean)
    found = mean @ to_words
    found = found / found.sum(-1, keepdim=True).clamp(min=torch.finfo(found.dtype).tiny)
    from_words = _membership(target).to(mean)
    return (from_words / from_words.sum(0, keepdim=True).clamp(min=1)).T @ found


def _membership(tokens: Sequence[Token]) -> Float[Tensor, "tokens words"]:
    matrix = torch.zeros(len(tokens), max((token.word for token in tokens), default=-1) + 1)
    for place, token in enumerate(tokens):
        matrix[place, token.word] = 0.0 if token.special else 1.0
    return matrix


class Link(NamedTuple):
    """A target word and a source word that it was written from."""

    source: int
    target: int
    weight: float


def alignment(looked: Float[Tensor, "target_words source_words"]) -> list[Link]:
    """For each target word the source words that it looked at most."""
    links = []
    for target, row in enumerate(looked.tolist()):
        strongest = max(row, default=0.0)
        if strongest > 0:
            links += [Link(at, target, weight) for at, weight in enumerate(row) if weight >= WORTH_A_LINE * strongest]
    return links


def unseen(looked: Float[Tensor, "target_words source_words"], source: Sequence[Token]) -> list[int]:
    """The source words that no target word looked at."""
    words = sorted({token.word for token in source if not token.special})
    if not len(looked) or not words or not bool(looked.any()):
        return []
    strongest = looked.amax(0).tolist()
    return [word for word in words if strongest[word] < UNSEEN / len(words)]


def active(
    tape: Tape, kind: str, silent: Iterable[tuple[str, int, int]] = ()
) -> list[Float[Tensor, "heads query key"]]:
    """The weights of one kind, layer by layer, without the heads (kind, layer, number) that were switched off."""
    off = set(silent)
    found = []
    for look in tape.of(kind):
        kept = [place for place, number in enumerate(look.heads) if (kind, look.layer, number) not in off]
        found.append(look.weights[0, kept].double())
    return found
