"""Attention as a function: queries, keys and values come in; for each query, a weighted mean of the values goes out.

    weights = softmax(query · keyᵀ / √head_dim)
    output  = weights · value

Match: each query is compared with each key; their dot product is the score.
Share: softmax turns a row of scores into shares that sum to one.
Mix: each query takes its shares of the values.

A dot product of `head_dim` numbers of spread 1 has spread √head_dim. Dividing by it keeps softmax soft:

>>> import math, torch
>>> from clearhead.primer.attention_function import attention, attention_weights, softmax
>>> scores = torch.tensor([12.5, 30.8, 25.1])
>>> scores / math.sqrt(64)
tensor([1.5625, 3.8500, 3.1375])
>>> softmax(scores / math.sqrt(64))
tensor([0.0638, 0.6282, 0.3081])
>>> softmax(scores).round(decimals=4)  # undivided, the winner takes all and little gradient is left
tensor([0.0000, 0.9967, 0.0033])

To check in your head: scores 0 and ln 3 become shares 1/4 and 3/4, so values 0 and 8 mix to 6.

>>> query, key, value = torch.tensor([[1.0]]), torch.tensor([[0.0], [math.log(3)]]), torch.tensor([[0.0], [8.0]])
>>> attention_weights(query, key)
tensor([[0.2500, 0.7500]])
>>> attention(query, key, value).round(decimals=4)
tensor([[6.]])

Next: `self_attention`, where all three come from one sentence.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def softmax(scores: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch key"]:
    """Turn each row of scores into shares that sum to one."""
    # Taking the row's maximum away changes no share, and exp can no longer overflow.
    exponentials = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


def attention_weights(
    query: Float[Tensor, "*batch query head_dim"],
    key: Float[Tensor, "*batch key head_dim"],
) -> Float[Tensor, "*batch query key"]:
    """Say how much each query looks at each key."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(key.shape[-1])
    return softmax(scores)


def attention(
    query: Float[Tensor, "*batch query head_dim"],
    key: Float[Tensor, "*batch key head_dim"],
    value: Float[Tensor, "*batch key value_dim"],
) -> Float[Tensor, "*batch query value_dim"]:
    """Give each query the mean of the values, weighted by how well their keys match."""
    return attention_weights(query, key) @ value
