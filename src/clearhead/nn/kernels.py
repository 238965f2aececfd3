"""Queries, keys and values in, mixed values out: the one place where attention is computed.

A new kernel is one class with this `forward` and one line in KERNELS. A row that may see nothing yields zeros, and
gradients stay finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from clearhead.nn import masks
from clearhead.nn.linear import is_narrow, rounded_rows

SHORT = 64
"""Keys up to which batched products beat the fused kernel on a CPU where there is padding; see docs/log.md."""
FEW = 16
"""Keys below which torch's softmax does not fill a vector of AVX-512, and plain operations are several times faster."""
CACHED_SCORES = 2**18
"""Scores that are made at a time where their sums are asked for: few enough to stay in the cache of a CPU."""

Hear: TypeAlias = Callable[[slice, Tensor], None]
"""Is told which heads, counted through all sequences of a batch, gave which weights."""


def share_heads(
    x: Float[Tensor, "batch kv_heads key head_dim"], num_heads: int
) -> Float[Tensor, "batch {num_heads} key head_dim"]:
    """Repeat each key-value head for the group of query heads that reads it."""
    groups = num_heads // x.shape[1]
    return x if groups == 1 else x.repeat_interleave(groups, dim=1)


def _lifted(bias: Float[Tensor, "*#lead #heads #query key"]) -> Float[Tensor, "#batch #heads #query key"]:
    """A bias with an axis for the batch, if it has none."""
    return bias if bias.ndim == 4 else bias[None]


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
        bias: Float[Tensor, "*#lead #heads #query key"] | None = None,
        causal: bool = False,
        dropout: float = 0.0,
        hear: Hear | None = None,
    ) -> Float[Tensor, "batch heads query head_dim"]:
        num_heads, query_len, head_dim = query.shape[1:]
        key, value = share_heads(key, num_heads), share_heads(value, num_heads)
        scores = (query / math.sqrt(head_dim)) @ key.transpose(-2, -1)
        if bias is not None:
            scores = scores + bias.to(scores.dtype)
        if causal:
            allowed = masks.both(allowed, masks.causal(query_len, key.shape[2], query.device)[None, None])
        weights = self.softmax(scores, allowed)
        if hear is not None:
            hear(slice(0, weights.shape[0] * num_heads), weights.flatten(0, 1))
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
        bias: Float[Tensor, "*#lead #heads #query key"] | None = None,
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
            mask = _lifted(bias).to(query.dtype)
            return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        # What torch does with a row that may see nothing depends on version and device, so such a row sees
        # everything here, and its output is then put to zero.
        sees_something = allowed.any(-1, keepdim=True)
        mask = allowed | ~sees_something
        if bias is not None:
            mask = _lifted(bias).to(query.dtype).masked_fill(~mask, -math.inf)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return mixed.masked_fill(~sees_something, 0.0)


class Batched(nn.Module):
    """The exact products with a gradient written by hand: fewer passes over memory, so fast where sequences are short.

    Dropout of weights, and a bias that is trained, are left to the exact kernel.
    """

    def __init__(self) -> None:
        super().__init__()
        self.exact = Exact()

    def forward(
        self,
        query: Float[Tensor, "batch heads query head_dim"],
        key: Float[Tensor, "batch kv_heads key head_dim"],
        value: Float[Tensor, "batch kv_heads key head_dim"],
        *,
        allowed: Bool[Tensor, "#batch #heads #query key"] | None = None,
        bias: Float[Tensor, "*#lead #heads #query key"] | None = None,
        causal: bool = False,
        dropout: float = 0.0,
    ) -> Float[Tensor, "batch heads query head_dim"]:
        if dropout or (bias is not None and bias.requires_grad):
            return self.exact(query, key, value, allowed=allowed, bias=bias, causal=causal, dropout=dropout)
        num_heads, query_len = query.shape[1:3]
        key, value = share_heads(key, num_heads), share_heads(value, num_heads)
        if causal:
            allowed = masks.both(allowed, masks.causal(query_len, key.shape[2], query.device)[None, None])
        penalty, blind = _penalties(query, allowed, bias)
        with torch.autocast(query.device.type, enabled=False):
            return _BatchedProducts.apply(query, key, value, penalty, blind)


class _BatchedProducts(torch.autograd.Function):
    """softmax(query · keyᵀ / √head_dim + penalty) · value, and zeros for blind rows."""

    @staticmethod
    def forward(
        context: Any, query: Tensor, key: Tensor, value: Tensor, penalty: Tensor | None, blind: Tensor | None
    ) -> Tensor:
        batch, heads, query_len, head_dim = query.shape
        rows = batch * heads
        # Each new number of rows is compiled for; see linear.py.
        filled_rows = rounded_rows(rows) if is_narrow(query) else rows
        query, key, value = (_lined_up(x, filled_rows) for x in (query, key, value))
        if penalty is not None:
            penalty = _lined_up(penalty.expand(batch, heads, -1, -1), filled_rows)
        weights = _weights(query, key, penalty)
        if blind is not None:
            weights[:rows].unflatten(0, (batch, heads)).masked_fill_(blind, 0.0)
        context.save_for_backward(query, key, value, weights)
        return torch.bmm(weights, value)[:rows].view(batch, heads, query_len, head_dim)

    @staticmethod
    @once_differentiable
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, weights = context.saved_tensors
        batch, heads = grads[0].shape[:2]
        scale, nothing = query.shape[-1] ** -0.5, query.new_zeros(())
        by_mixed = _lined_up(grads[0], len(query))
        by_value = torch.bmm(weights.mT, by_mixed)
        by_weights = torch.bmm(by_mixed, value.mT)
        by_scores = _softmax_backward(by_weights, weights)
        by_query = torch.baddbmm(nothing, by_scores, key, beta=0, alpha=scale)
        by_key = torch.baddbmm(nothing, by_scores.mT, query, beta=0, alpha=scale)
        rows = slice(0, batch * heads)
        return *(x[rows].unflatten(0, (batch, heads)) for x in (by_query, by_key, by_value)), None, None


def _lined_up(x: Float[Tensor, "batch heads time width"], rows: int) -> Float[Tensor, "{rows} time width"]:
    """The heads of all sequences in one row, with heads of zeros at its end."""
    count = x.shape[0] * x.shape[1]
    if count == rows:
        return x.flatten(0, 1).contiguous()
    line = x.new_empty(rows, *x.shape[2:])
    line[:count].unflatten(0, x.shape[:2]).copy_(x)
    line[count:] = 0
    return line


class Telling(nn.Module):
    """For those who must hear the weights and not keep them: a few heads at a time, as many as a CPU's cache holds.

    Where there will be a gradient, or the device is none that gains by it, the exact kernel does the work.
    """

    def __init__(self) -> None:
        super().__init__()
        self.exact = Exact()

    def forward(
        self,
        query: Float[Tensor, "batch heads query head_dim"],
        key: Float[Tensor, "batch kv_heads key head_dim"],
        value: Float[Tensor, "batch kv_heads key head_dim"],
        *,
        hear: Hear,
        allowed: Bool[Tensor, "#batch #heads #query key"] | None = None,
        bias: Float[Tensor, "*#lead #heads #query key"] | None = None,
        causal: bool = False,
        dropout: float = 0.0,
    ) -> Float[Tensor, "batch heads query head_dim"]:
        if dropout or causal or torch.is_grad_enabled() or query.device.type != "cpu":
            how: dict[str, Any] = {"allowed": allowed, "bias": bias, "causal": causal, "dropout": dropout}
            return self.exact(query, key, value, hear=hear, **how)
        batch, heads, query_len, head_dim = query.shape
        penalty, blind = _penalties(query, allowed, bias)
        lots = [_in_one_row(x, batch, heads) for x in (penalty, blind)]
        query, key, value = (
            x.flatten(0, 1).contiguous() for x in (query, share_heads(key, heads), share_heads(value, heads))
        )
        mixed = torch.empty_like(query)
        at_once = max(1, CACHED_SCORES // max(1, query_len * key.shape[1]))
        with torch.autocast("cpu", enabled=False):
            for first in range(0, len(query), at_once):
                rows = slice(first, first + at_once)
                added, hidden = (None if lot is None else lot[rows] for lot in lots)
                weights = _weights(query[rows], key[rows], added)
                if hidden is not None:
                    weights.masked_fill_(hidden, 0.0)
                hear(rows, weights)
                torch.bmm(weights, value[rows], out=mixed[rows])
        return mixed.view(batch, heads, query_len, head_dim)


def _in_one_row(x: Tensor | None, batch: int, heads: int) -> Tensor | None:
    return None if x is None else x.expand(batch, heads, -1, -1).flatten(0, 1)


def _penalties(
    query: Float[Tensor, "batch heads query head_dim"],
    allowed: Bool[Tensor, "#batch #heads #query key"] | None,
    bias: Float[Tensor, "*#lead #heads #query key"] | None,
) -> tuple[Float[Tensor, "#batch #heads #query key"] | None, Bool[Tensor, "#batch #heads #query 1"] | None]:
    """What is added to the scores, and which rows see nothing, if there are any."""
    penalty = None if bias is None else _lifted(bias).to(query.dtype)
    if allowed is None:
        return penalty, None
    sees_something = allowed.any(-1, keepdim=True)
    # The lowest finite number takes every score's place, for nothing that is added to it can be seen.
    lowest = torch.finfo(query.dtype).min
    penalty = torch.where(allowed, query.new_zeros(()) if penalty is None else penalty, lowest)
    return penalty, None if sees_something.all() else ~sees_something


def _weights(
    query: Float[Tensor, "rows query head_dim"],
    key: Float[Tensor, "rows key head_dim"],
    penalty: Float[Tensor, "rows #query key"] | None,
) -> Float[Tensor, "rows query key"]:
    """softmax(query · keyᵀ / √head_dim + penalty), in one piece of memory."""
    scale = query.shape[-1] ** -0.5
    if penalty is None:
        scores = torch.bmm(query, key.mT).mul_(scale)
    else:
        scores = torch.baddbmm(penalty, query, key.mT, alpha=scale)
    return _softmax(scores)


def _softmax(scores: Float[Tensor, "rows query key"]) -> Float[Tensor, "rows query key"]:
    """In the memory of the scores if they are wide; torch's own is slow in bf16, and where keys are few."""
    wide = _widened(scores)
    if scores.shape[-1] >= FEW:
        return torch.softmax(wide, -1, out=wide).to(scores.dtype)
    wide.sub_(wide.amax(-1, keepdim=True)).exp_()
    return wide.div_(wide.sum(-1, keepdim=True)).to(scores.dtype)


def _softmax_backward(
    by_weights: Float[Tensor, "rows query key"], weights: Float[Tensor, "rows query key"]
) -> Float[Tensor, "rows query key"]:
    wide, weights = _widened(by_weights), _widened(weights)
    if weights.shape[-1] >= FEW:
        return torch._softmax_backward_data(wide, weights, -1, wide.dtype).to(by_weights.dtype)
    weighed = wide * weights
    return weighed.addcmul_(weights, weighed.sum(-1, keepdim=True), value=-1).to(by_weights.dtype)


def _widened(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return x.float() if x.itemsize < torch.float.itemsize else x


class Auto(nn.Module):
    """The faster of two: batched products while training on a CPU with short sequences, else the fused kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.batched, self.fused = Batched(), Fused()

    def forward(
        self,
        query: Float[Tensor, "batch heads query head_dim"],
        key: Float[Tensor, "batch kv_heads key head_dim"],
        value: Float[Tensor, "batch kv_heads key head_dim"],
        *,
        allowed: Bool[Tensor, "#batch #heads #query key"] | None = None,
        bias: Float[Tensor, "*#lead #heads #query key"] | None = None,
        causal: bool = False,
        dropout: float = 0.0,
    ) -> Float[Tensor, "batch heads query head_dim"]:
        # Training is asked first: an exporter must not see a choice that depends on the length.
        suits = query.requires_grad and query.device.type == "cpu" and key.shape[2] <= SHORT
        kernel = self.batched if suits else self.fused
        return kernel(query, key, value, allowed=allowed, bias=bias, causal=causal, dropout=dropout)


KERNELS: dict[str, type[Exact] | type[Fused] | type[Batched] | type[Auto]] = {
    "exact": Exact,
    "fused": Fused,
    "batched": Batched,
    "auto": Auto,
}
