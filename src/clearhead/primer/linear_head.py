"""One attention head from linear layers: vectors of width `dim` come in, vectors of width `head_dim` go out.

    query = x · Qᵀ + q        key = x · Kᵀ + k        value = x · Vᵀ + v
    output = softmax(query · keyᵀ / √head_dim) · value

Two things differ from the bare matrices: `nn.Linear` keeps its matrix lying on its side, (out, in), and adds a bias.
So with the matrices turned and the biases at zero, it is the head from before:

>>> import torch
>>> from clearhead.primer.linear_head import LinearHead
>>> from clearhead.primer.parameter_head import ParameterHead
>>> before = ParameterHead(dim=6, head_dim=4)
>>> head = LinearHead(dim=6, head_dim=4)
>>> head.query.weight.shape, before.query.shape
(torch.Size([4, 6]), torch.Size([6, 4]))
>>> weights = {f"{name}.weight": matrix.T for name, matrix in before.state_dict().items()}
>>> biases = {f"{name}.bias": torch.zeros(4) for name in before.state_dict()}
>>> head.load_state_dict(weights | biases)
<All keys matched successfully>
>>> x = torch.randn(2, 3, 6)
>>> torch.allclose(head(x), before(x), atol=1e-5)
True

Next: `masked_head`, which may not look everywhere.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from clearhead.primer.attention_function import attention


class LinearHead(nn.Module):
    """One head, its three matrices inside linear layers."""

    def __init__(self, dim: int, head_dim: int) -> None:
        super().__init__()
        self.query = nn.Linear(dim, head_dim)
        self.key = nn.Linear(dim, head_dim)
        self.value = nn.Linear(dim, head_dim)

    def forward(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time head_dim"]:
        return attention(self.query(x), self.key(x), self.value(x))
