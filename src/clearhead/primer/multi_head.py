"""Multi-head attention by hand: vectors come in, several heads look at them, vectors of the same width go out.

    head_i = attention(x · Q_iᵀ, x · K_iᵀ, x · V_iᵀ)        (biases left out)
    output = [head_1, head_2, …] · Oᵀ

One head gives each word one mean, and a mean blurs: it cannot look at the verb and at the subject and keep them apart.
Several narrow heads can, and the output layer mixes what they bring home.

Heads of zero queries look everywhere alike. Two such heads with a causal mask, one for each column, give running means:

>>> import torch
>>> from clearhead.primer.masked_head import causal
>>> from clearhead.primer.multi_head import MultiHead
>>> attention = MultiHead(dim=2, num_heads=2).requires_grad_(False)
>>> for parameter in attention.parameters():
...     _ = parameter.zero_()
>>> for column, head in enumerate(attention.heads):
...     head.value.weight[0, column] = 1
>>> attention.output.weight[:] = torch.eye(2)
>>> x = torch.tensor([[[2.0, 40.0], [4.0, 80.0], [6.0, 120.0]]])
>>> attention(x, causal(3)[None]).round(decimals=4).tolist()
[[[2.0, 40.0], [3.0, 60.0], [4.0, 80.0]]]

More heads cost no more parameters, as each is narrower: always 4 · (512 · 512 + 512).

>>> [sum(p.numel() for p in MultiHead(dim=512, num_heads=h).parameters()) for h in (1, 8, 64)]
[1050624, 1050624, 1050624]

Next: `folded_heads`, the same without the loop.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from clearhead.primer.masked_head import MaskedHead


class MultiHead(nn.Module):
    """Several heads side by side and a layer that mixes them."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(MaskedHead(dim, dim // num_heads) for _ in range(num_heads))
        self.output = nn.Linear(dim, dim)

    def forward(
        self, x: Float[Tensor, "batch time dim"], allowed: Bool[Tensor, "#batch time time"]
    ) -> Float[Tensor, "batch time dim"]:
        return self.output(torch.cat([head(x, allowed) for head in self.heads], dim=-1))
