"""Scores of a whole vocabulary in, the few best tokens out, exactly, at a fraction of what a full search costs.

On a CPU the largest value of a block is found many times faster than its place. So each row is cut into blocks, and
only the blocks with the largest maxima are searched: the best `count` tokens stand in the best `count` blocks.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 64
WORTH_IT = 32 * BLOCK
"""Vocabularies smaller than this are searched as they are."""


def best(scores: Float[Tensor, "rows vocab"]) -> Int[Tensor, "rows"]:
    """The best token of each row; of equals, the first."""
    if scores.shape[1] < WORTH_IT:
        return scores.argmax(-1)
    values, tokens = _inside(scores, _maxima(scores).argmax(-1, keepdim=True))
    return tokens.gather(1, values.argmax(-1, keepdim=True))[:, 0]


def best_few(
    scores: Float[Tensor, "rows vocab"], count: int
) -> tuple[Float[Tensor, "rows few"], Int[Tensor, "rows few"]]:
    """The `count` best scores of each row and their tokens, best first; the first is the one that `best` takes."""
    values, tokens = _top(scores, min(count, scores.shape[1]))
    # topk orders equals as it likes.
    tied = (values[:, :1] == values[:, 1:2]).all(1).nonzero()[:, 0]
    if len(tied):
        first = scores[tied].argmax(-1, keepdim=True)
        others = torch.where(tokens[tied] == first, tokens[tied, :1], tokens[tied])
        tokens[tied] = torch.cat((first, others[:, 1:]), 1)
    return values, tokens


def _top(scores: Float[Tensor, "rows vocab"], count: int) -> tuple[Tensor, Tensor]:
    # With so many blocks to search there is nothing to be saved.
    if scores.shape[1] < max(WORTH_IT, 4 * count * BLOCK):
        values, tokens = scores.topk(count)
        return values, tokens
    inside, tokens = _inside(scores, _maxima(scores).topk(count, sorted=False).indices)
    values, places = inside.topk(count)
    return values, tokens.gather(1, places)


def _maxima(scores: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows blocks"]:
    """The largest score of each block; the last block may be a short one."""
    whole = scores.shape[1] // BLOCK * BLOCK
    maxima = scores[:, :whole].unflatten(1, (-1, BLOCK)).amax(-1)
    if whole == scores.shape[1]:
        return maxima
    return torch.cat((maxima, scores[:, whole:].amax(-1, keepdim=True)), 1)


def _inside(
    scores: Float[Tensor, "rows vocab"], blocks: Int[Tensor, "rows few"]
) -> tuple[Float[Tensor, "rows many"], Int[Tensor, "rows many"]]:
    """The scores and the tokens of these blocks; what a short block lacks is minus infinity, at the last token."""
    last = scores.shape[1] - 1
    places = (blocks[:, :, None] * BLOCK + torch.arange(BLOCK, device=blocks.device)).flatten(1)
    tokens = places.clamp(max=last)
    values = scores.gather(1, tokens)
    return (values, tokens) if (last + 1) % BLOCK == 0 else (values.masked_fill_(places > last, -torch.inf), tokens)
