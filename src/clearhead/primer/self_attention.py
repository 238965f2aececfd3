"""Self-attention without parameters: a sentence of vectors comes in, and each goes out as a mix of all of them.

    query = key = value = x
    output = softmax(x · xᵀ / √dim) · x

Each word asks, answers and gives with the same vector, so words that point the same way draw nearer.

Three words: two at right angles, and a third that is their sum.

>>> import torch
>>> from clearhead.primer.attention_function import attention_weights
>>> from clearhead.primer.self_attention import self_attention
>>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
>>> x @ x.T  # who matches whom: symmetric, as nobody asks differently from how they answer
tensor([[1., 0., 1.],
        [0., 1., 1.],
        [1., 1., 2.]])
>>> weights = attention_weights(x, x)
>>> weights  # first row: e^(1/√2) = 2.028 against e^0 = 1, so 2.028/5.056, 1/5.056, 2.028/5.056
tensor([[0.4011, 0.1978, 0.4011],
        [0.1978, 0.4011, 0.4011],
        [0.2483, 0.2483, 0.5035]])
>>> weights.sum(dim=-1).round(decimals=4)
tensor([1., 1., 1.])
>>> self_attention(x)
tensor([[0.8022, 0.5989],
        [0.5989, 0.8022],
        [0.7517, 0.7517]])

Order means nothing yet: shuffle the words, and the same outputs come out shuffled.

>>> shuffled = [2, 0, 1]
>>> torch.allclose(self_attention(x[shuffled]), self_attention(x)[shuffled])
True

Next: `parameter_head`, where a word learns to ask, answer and give differently.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from clearhead.primer.attention_function import attention


def self_attention(x: Float[Tensor, "*batch time dim"]) -> Float[Tensor, "*batch time dim"]:
    """Let every word attend to every word, itself included."""
    return attention(x, x, x)
