"""Queries, keys and values in, mixed values out: the one place where attention is computed.

A new kernel is one class with this `forward` and one line in KERNELS. A row that may see nothing yields zeros, and
gradients stay finite.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from clearhead.nn import masks


def share_heads(
    x: Float[Tensor, "batch kv_heads key head_dim"], num_heads: int
) -> Float[Tensor, "batch {num_heads} key head_dim"]:
    """Repeat each key-value head for the group of query heads that reads it."""
    groups = num_heads // x.shape[1]
    return x if groups == 1 else x.repeat_interleave(groups, dim=1)


class MaskedSoftmax(nn.Module):
    """Scores to weights; a module of its own so that a recorder can listen to it."""

    def forward(
        self,
        scores: Float[Tensor, "batch heads query key"],
        allowed: Bool[Tensor, "#batch #heads #query key"] | None,
    ) -> Float[Tensor, "batch heads query key"]:
        if allowed is None:
            return scores.softmax(-1)
        # The lowest finite number and not -inf: a row without any allowed key would be NaN, forward and backward.
        hidden = ~allowed
        lowest = torch.finfo(scores.dtype).min
        return scores.masked_fill(hidden, lowest).softmax(-1).masked_fill(hidden, 0.0)


class Exact(nn.Module):
    """Attention as the paper writes it; the weights exist and can be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.softmax = MaskedSoftmax()

    def forward(
        self,
        query: Float[Tensor, "batch heads query head_dim"],
        key: Float[Tensor, "batch kv_heads key head_dim"],
        value: Float[Tensor, "batch kv_heads key head_dim"],
        *,
        allowed: Bool[Tensor, "#batch #heads #query key"] | None = None,
        bias: Float[Tensor, "#heads query key"] | None = None,
        causal: bool = False,
        dropout: float = 0.0,
    ) -> Float[Tensor, "batch heads query head_dim"]:
        num_heads, query_len, head_dim = query.shape[1:]
        key, value = share_heads(key, num_heads), share_heads(value, num_heads)
        scores = (query / math.sqrt(head_dim)) @ key.transpose(-2, -1)
        if bias is not None:
            scores = scores + bias.to(scores.dtype)
        if causal:
            allowed = masks.both(allowed, masks.causal(query_len, key.shape[2], query.device)[None, None])
        weights = self.softmax(scores, allowed)
        return F.dropout(weights, dropout) @ value


class Fused(nn.Module):
    """torch's fused attention: the weights never exist."""

    def forward(
        self,
        query: Float[Tensor, "batch heads query head_dim"],
        key: Float[Tensor, "batch kv_heads key head_dim"],
        value: Float[Tensor, "batch kv_heads key head_dim"],
        *,
        allowed: Bool[Tensor, "#batch #heads #query key"] | None = None,
        bias: Float[Tensor, "#heads query key"] | None = None,
        causal: bool = False,
        dropout: float = 0.0,
    ) -> Float[Tensor, "batch heads query head_dim"]:
        num_heads, query_len = query.shape[1:3]
        key, value = share_heads(key, num_heads), share_heads(value, num_heads)
        if allowed is None and bias is None and (not causal or query_len == key.shape[2]):
            return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=causal)
        if causal:
            allowed = masks.both(allowed, masks.causal(query_len, key.shape[2], query.device)[None, None])
        if allowed is None:
            assert bias is not None
            mask = bias.to(query.dtype)[None]
            return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        # What torch does with a row that may see nothing depends on version and device, so such a row sees
        # everything here, and its output is then put to zero.
        sees_something = allowed.any(-1, keepdim=True)
        mask = allowed | ~sees_something
        if bias is not None:
            mask = bias.to(query.dtype)[None].masked_fill(~mask, -math.inf)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return mixed.masked_fill(~sees_something, 0.0)


KERNELS: dict[str, type[Exact] | type[Fused]] = {"exact": Exact, "fused": Fused}
