"""The post-norm block of the first Transformer: vectors come in, vectors of the same width go out.

    x = norm(x + attention(x))            words exchange what they know
    x = norm(x + feedforward(x))          each word thinks it over by itself

Adding the input back (the residual) gives the gradient a short way past what is added. The norm after each sum
(post-norm) sets every vector to mean 0 and spread 1, so that stacked blocks neither swell nor fade.

Layer norm by hand: 1, 2, 3 has mean 2 and variance 2/3, so 3 becomes 1/√(2/3) = 1.2247.

>>> import torch
>>> from clearhead.primer.masked_head import causal
>>> from clearhead.primer.post_norm_block import PostNormBlock
>>> torch.nn.LayerNorm(3)(torch.tensor([1.0, 2.0, 3.0])).detach()
tensor([-1.2247,  0.0000,  1.2247])

Whatever comes in, each vector that goes out has mean 0 and spread 1:

>>> block = PostNormBlock(dim=8, num_heads=2, ff_dim=32)
>>> x = block(100 * torch.randn(1, 3, 8), causal(3)[None])
>>> bool(x.mean(dim=-1).abs().max() < 1e-5), bool((x.std(dim=-1, correction=0) - 1).abs().max() < 1e-3)
(True, True)

Next: `additive_attention`, where attention came from.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from clearhead.primer.folded_heads import FoldedHeads


class PostNormBlock(nn.Module):
    """Attention, then feed-forward, each with its residual and its norm."""

    def __init__(self, dim: int, num_heads: int, ff_dim: int) -> None:
        super().__init__()
        self.attention = FoldedHeads(dim, num_heads)
        self.attention_norm = nn.LayerNorm(dim)
        self.feedforward = nn.Sequential(nn.Linear(dim, ff_dim), nn.ReLU(), nn.Linear(ff_dim, dim))
        self.feedforward_norm = nn.LayerNorm(dim)

    def forward(
        self, x: Float[Tensor, "batch time dim"], allowed: Bool[Tensor, "#batch time time"]
    ) -> Float[Tensor, "batch time dim"]:
        x = self.attention_norm(x + self.attention(x, allowed))
        return self.feedforward_norm(x + self.feedforward(x))
