"""Additive attention beside dot-product: queries, keys and values come in, weighted means of the values go out.

    dot-product:  score = query · key / √head_dim
    additive:     score = v · tanh(Q query + K key)        (Bahdanau, Cho and Bengio, 2014)

Only the score differs; sharing and mixing stay the same. Additive attention is a small network that judges each pair:
query and key may differ in width, and tanh keeps every score between −Σ|v| and Σ|v|. But it builds a vector for each
pair, where the dot product builds one number by plain matrix multiplication; so the Transformer took the dot product.

One query, 1, and two keys, −100 and 100. The dot products are −100 and 100: the winner takes all. With Q = 0, K = 1 and
v = ½ ln 3, the additive scores are −½ ln 3 and ½ ln 3: shares of 1/4 and 3/4.

>>> import math, torch
>>> from clearhead.primer.additive_attention import AdditiveAttention
>>> from clearhead.primer.attention_function import attention_weights
>>> query, key, everything = torch.tensor([[1.0]]), torch.tensor([[-100.0], [100.0]]), torch.tensor([[True, True]])
>>> attention_weights(query, key)
tensor([[0., 1.]])
>>> additive = AdditiveAttention(query_dim=1, key_dim=1, hidden_dim=1)
>>> numbers = {"query.weight": 0.0, "key.weight": 1.0, "vector.weight": math.log(3) / 2}
>>> additive.load_state_dict({name: torch.tensor([[number]]) for name, number in numbers.items()})
<All keys matched successfully>
>>> additive.weights(query, key, everything).detach()
tensor([[0.2500, 0.7500]])

That was the primer. The same ideas, grown up: `clearhead.nn`.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from clearhead.primer.masked_head import masked_weights


class AdditiveAttention(nn.Module):
    """Attention whose scores come from a small network."""

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_dim, hidden_dim, bias=False)
        self.key = nn.Linear(key_dim, hidden_dim, bias=False)
        self.vector = nn.Linear(hidden_dim, 1, bias=False)

    def scores(
        self, query: Float[Tensor, "*batch query query_dim"], key: Float[Tensor, "*batch key key_dim"]
    ) -> Float[Tensor, "*batch query key"]:
        """Judge each query with each key."""
        pairs = self.query(query).unsqueeze(-2) + self.key(key).unsqueeze(-3)  # (*batch, query, key, hidden_dim)
        return self.vector(pairs.tanh()).squeeze(-1)

    def weights(
        self,
        query: Float[Tensor, "*batch query query_dim"],
        key: Float[Tensor, "*batch key key_dim"],
        allowed: Bool[Tensor, "*#batch query key"],
    ) -> Float[Tensor, "*batch query key"]:
        """Say how much each query looks at each key it may look at."""
        return masked_weights(self.scores(query, key), allowed)

    def forward(
        self,
        query: Float[Tensor, "*batch query query_dim"],
        key: Float[Tensor, "*batch key key_dim"],
        value: Float[Tensor, "*batch key value_dim"],
        allowed: Bool[Tensor, "*#batch query key"],
    ) -> Float[Tensor, "*batch query value_dim"]:
        return self.weights(query, key, allowed) @ value
