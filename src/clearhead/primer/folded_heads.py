"""Multi-head attention, heads folded into the batch: vectors come in, vectors of the same width go out.

    (batch, time, num_heads · head_dim)  →  (batch · num_heads, time, head_dim)

Heads never talk to each other before the output layer, and neither do the sentences of a batch. So a head may stand in
the batch as if it were one more sentence: the loop becomes one wide multiplication, and the numbers stay the same.

One sentence of two words, four numbers each, two heads: the first head takes the left half of each word.

>>> import torch
>>> from clearhead.primer.folded_heads import fold_heads, unfold_heads
>>> x = torch.tensor([[[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]])
>>> folded = fold_heads(x, num_heads=2)
>>> folded.tolist()
[[[0.0, 1.0], [4.0, 5.0]], [[2.0, 3.0], [6.0, 7.0]]]
>>> torch.equal(unfold_heads(folded, num_heads=2), x)
True

Next: `post_norm_block`, what surrounds attention in a Transformer.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from clearhead.primer.masked_head import masked_attention


def fold_heads(
    x: Float[Tensor, "batch time dim"], num_heads: int
) -> Float[Tensor, "batch*{num_heads} time dim//{num_heads}"]:
    """Cut each vector into heads and let them stand in the batch."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2).flatten(0, 1)


def unfold_heads(
    x: Float[Tensor, "folded time head_dim"], num_heads: int
) -> Float[Tensor, "folded//{num_heads} time head_dim*{num_heads}"]:
    """Take the heads out of the batch and join them to whole vectors again."""
    return x.unflatten(0, (-1, num_heads)).transpose(1, 2).flatten(-2)


class FoldedHeads(nn.Module):
    """Several heads at the price of one: each linear layer holds the matrices of all heads, stacked."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.output = nn.Linear(dim, dim)

    def forward(
        self, x: Float[Tensor, "batch time dim"], allowed: Bool[Tensor, "#batch time time"]
    ) -> Float[Tensor, "batch time dim"]:
        query, key, value = (fold_heads(layer(x), self.num_heads) for layer in (self.query, self.key, self.value))
        # Each sentence's mask beside itself, once per head: aabb, as in fold_heads. `repeat` would give abab, which has
        # the right shape and the wrong mask.
        folded = allowed.expand(len(x), -1, -1).repeat_interleave(self.num_heads, dim=0)
        return self.output(unfold_heads(masked_attention(query, key, value, folded), self.num_heads))
