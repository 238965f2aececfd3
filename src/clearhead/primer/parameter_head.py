"""One attention head from bare parameters: vectors of width `dim` come in, vectors of width `head_dim` go out.

    query = x · Q        key = x · K        value = x · V
    output = softmax(query · keyᵀ / √head_dim) · value

The three matrices are all that is learned: what a word looks for, what it can be found by, and what it gives.

Two words, one number per head. Both ask 1; their keys are 0 and ln 3, their values 0 and 8; so both receive 8 · 3/4.

>>> import math, torch
>>> from clearhead.primer.parameter_head import ParameterHead
>>> head = ParameterHead(dim=2, head_dim=1)
>>> matrices = {"query": [[1.0], [1.0]], "key": [[0.0], [math.log(3)]], "value": [[0.0], [8.0]]}
>>> head.load_state_dict({name: torch.tensor(matrix) for name, matrix in matrices.items()})
<All keys matched successfully>
>>> x = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
>>> head(x).round(decimals=4).tolist()
[[[6.0], [6.0]]]

Next: `linear_head`, the same with the layer everyone uses.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.primer.attention_function import attention


class ParameterHead(nn.Module):
    """One head, its three matrices written out."""

    def __init__(self, dim: int, head_dim: int) -> None:
        super().__init__()
        # Spread 1/√dim: then numbers of spread 1 that come in go out with spread 1.
        self.query = nn.Parameter(torch.randn(dim, head_dim) / math.sqrt(dim))
        self.key = nn.Parameter(torch.randn(dim, head_dim) / math.sqrt(dim))
        self.value = nn.Parameter(torch.randn(dim, head_dim) / math.sqrt(dim))

    def forward(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time head_dim"]:
        return attention(x @ self.query, x @ self.key, x @ self.value)
