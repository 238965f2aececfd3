"""One attention head with a mask: vectors and what each may look at come in, vectors of width `head_dim` go out.

    weights = softmax(scores where allowed, −∞ elsewhere)
    output  = weights · value

e to the power of −∞ is zero, so what is not allowed gets no share, and the rest still sums to one. One mask serves
every purpose: hide the future (`causal`), hide padding, hide anything. It is bool, and True means "may look".

With equal scores, a causal mask shares evenly over the past and the present:

>>> import torch
>>> from clearhead.primer.masked_head import causal, masked_weights
>>> masked_weights(torch.zeros(5, 5), causal(5))
tensor([[1.0000, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.5000, 0.5000, 0.0000, 0.0000, 0.0000],
        [0.3333, 0.3333, 0.3333, 0.0000, 0.0000],
        [0.2500, 0.2500, 0.2500, 0.2500, 0.0000],
        [0.2000, 0.2000, 0.2000, 0.2000, 0.2000]])

A row that may see nothing takes nothing:

>>> masked_weights(torch.zeros(1, 3), torch.tensor([[False, False, False]]))
tensor([[0., 0., 0.]])

Next: `multi_head`, which looks in several ways at once.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from clearhead.primer.attention_function import softmax


def causal(time: int) -> Bool[Tensor, "{time} {time}"]:
    """Let each position see itself and the past."""
    return torch.ones(time, time, dtype=torch.bool).tril()


def masked_weights(
    scores: Float[Tensor, "*batch query key"], allowed: Bool[Tensor, "*#batch query key"]
) -> Float[Tensor, "*batch query key"]:
    """Share out each row among the keys it may look at."""
    # Padding makes rows that may see nothing. Of nothing but −∞, softmax makes 0/0: NaN, which spreads to whatever it
    # touches. The lowest finite number hides a key just as well; in a row that sees nothing it leaves even shares,
    # forward and backward finite, and the second fill takes them away.
    hidden = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    return softmax(hidden).masked_fill(~allowed, 0.0)


def masked_attention(
    query: Float[Tensor, "*batch query head_dim"],
    key: Float[Tensor, "*batch key head_dim"],
    value: Float[Tensor, "*batch key value_dim"],
    allowed: Bool[Tensor, "*#batch query key"],
) -> Float[Tensor, "*batch query value_dim"]:
    """Give each query the weighted mean of the values it may look at."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(key.shape[-1])
    return masked_weights(scores, allowed) @ value


class MaskedHead(nn.Module):
    """One head that looks only where it may."""

    def __init__(self, dim: int, head_dim: int) -> None:
        super().__init__()
        self.query = nn.Linear(dim, head_dim)
        self.key = nn.Linear(dim, head_dim)
        self.value = nn.Linear(dim, head_dim)

    def forward(
        self, x: Float[Tensor, "batch time dim"], allowed: Bool[Tensor, "#batch time time"]
    ) -> Float[Tensor, "batch time head_dim"]:
        return masked_attention(self.query(x), self.key(x), self.value(x), allowed)
