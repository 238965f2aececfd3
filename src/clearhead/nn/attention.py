"""A stream in, the same stream mixed across positions out: projections and heads around one of the KERNELS.

Multi-head, grouped-query and multi-query attention are one class: only `num_kv_heads` differs. Heads may have been
pruned: those that are left keep their numbers, and with them their slope in ALiBi.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Bool, Float
from torch import Tensor, nn

from clearhead.errors import ConfigError, choose
from clearhead.nn.cache import KeyValueCache, KeyValues, Seats
from clearhead.nn.gapless import Gapless
from clearhead.nn.kernels import KERNELS, Exact, Telling
from clearhead.nn.linear import Linear, project
from clearhead.nn.positions import Positions
from clearhead.nn.tokens import Witness


def split_heads(
    x: Float[Tensor, "rows tokens width"], num_heads: int, gapless: Gapless | None = None
) -> Float[Tensor, "batch {num_heads} time _"]:
    """Cut the features into heads: (batch, time, heads · head_dim) → (batch, heads, time, head_dim)."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2) if gapless is None else gapless.split_heads(x, num_heads)


def merge_heads(
    x: Float[Tensor, "batch heads time head_dim"], gapless: Gapless | None = None
) -> Float[Tensor, "rows tokens width"]:
    """Lay the heads side by side again."""
    return x.transpose(1, 2).flatten(2) if gapless is None else gapless.merge_heads(x)


def checked_heads(heads: Sequence[int], num_heads: int, num_kv_heads: int) -> tuple[int, ...]:
    """The numbers of heads that are left, if they can be: some, in order, and whole groups that share keys."""
    size = num_heads // num_kv_heads
    groups = [set(range(first, first + size)) & set(heads) for first in range(0, num_heads, size)]
    if (
        not heads
        or list(heads) != sorted({*heads} & {*range(num_heads)})
        or {len(group) for group in groups} - {0, size}
    ):
        sharing = "" if size == 1 else f", in whole groups of {size}"
        raise ConfigError(f"heads {list(heads)} must be some of 0 to {num_heads - 1}, in order{sharing}")
    return tuple(heads)


class Attention(nn.Module):
    """Self-attention, or with a `context` cross attention."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        heads: Sequence[int] | None = None,
        projection_bias: bool = True,
        dropout: float = 0.0,
        kernel: str = "fused",
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads < 1 or (head_dim is None and dim % num_heads):
            raise ConfigError(f"dim {dim} cannot be cut into {num_heads} heads: choose num_heads that divides it")
        if num_kv_heads < 1 or num_heads % num_kv_heads:
            raise ConfigError(f"num_heads {num_heads} must be a multiple of num_kv_heads {num_kv_heads}")
        self.heads = tuple(range(num_heads)) if heads is None else checked_heads(heads, num_heads, num_kv_heads)
        """The numbers of the heads there are: all of `num_heads`, or those of them that were left."""
        self.is_whole = len(self.heads) == num_heads
        self.head_dim = head_dim or dim // num_heads
        num_kv_heads = num_kv_heads * len(self.heads) // num_heads
        num_heads = len(self.heads)
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.dropout = dropout
        self.query = Linear(dim, num_heads * self.head_dim, projection_bias)
        self.key = Linear(dim, num_kv_heads * self.head_dim, projection_bias)
        self.value = Linear(dim, num_kv_heads * self.head_dim, projection_bias)
        self.output = Linear(num_heads * self.head_dim, dim, projection_bias)
        self.kernel: nn.Module = choose(KERNELS, kernel, "kernel")()

    def forward(
        self,
        x: Float[Tensor, "rows tokens dim"],
        context: Float[Tensor, "rows others dim"] | KeyValues | None = None,
        *,
        allowed: Bool[Tensor, "#memories #heads #query key"] | None = None,
        bias: Float[Tensor, "#memories #heads #query key"] | None = None,
        causal: bool = False,
        positions: Positions | None = None,
        at: Float[Tensor, "batch query"] | None = None,
        cache: KeyValueCache | None = None,
        seats: Seats | None = None,
        witness: Witness | None = None,
        gapless: Gapless | None = None,
        context_gapless: Gapless | None = None,
    ) -> Float[Tensor, "rows tokens dim"]:
        """Mix; with `seats`, the rows of `x` look at a context that several of them may share.

        `bias` is added to the scores, beside what positions add; `at` says where the tokens of `x` stand, if not one
        after the other. A `witness` is told what they did. Where `x` or the context lies without padding, its `gapless`
        says how it stands in sequences, as many for both.
        """
        if context is None:
            query, *own = project(x, self.query, self.key, self.value)
            query = split_heads(query, self.num_heads, gapless)
            query, key, value = self._own_past(query, self._as_heads(own, gapless), positions, cache, at)
            if positions is not None:
                apart = positions.bias(query.shape[2], key.shape[2], x.device, at)
                apart = apart if apart is None or self.is_whole else apart[..., list(self.heads), :, :]
                bias = bias if apart is None else apart if bias is None else apart + bias
        else:
            query = self.query(x)
            query = split_heads(query if seats is None else seats.gather(query), self.num_heads, gapless)
            key, value = context if isinstance(context, KeyValues) else self.remember(context, context_gapless)
        kernel, hearing = self.kernel, {}
        if witness is not None:
            witness.see(key, self.num_heads)
            if witness.hears:
                # The others never have the weights; one that is exact may have somebody else listening, too.
                kernel = kernel if isinstance(kernel, Exact) else Telling()
                hearing = {"hear": witness.hear}
        mixed = kernel(
            query,
            key,
            value,
            allowed=allowed,
            bias=bias,
            causal=causal and query.shape[2] > 1,
            dropout=self.dropout if self.training else 0.0,
            **hearing,
        )
        mixed = merge_heads(mixed, gapless)
        return self.output(mixed if seats is None else seats.scatter(mixed))

    def remember(self, context: Float[Tensor, "rows others dim"], gapless: Gapless | None = None) -> KeyValues:
        """The keys and values of a context, to be computed once and looked at many times."""
        return self._as_heads(project(context, self.key, self.value), gapless)

    def _as_heads(self, parts: Sequence[Tensor], gapless: Gapless | None) -> KeyValues:
        return KeyValues(*(split_heads(part, self.num_kv_heads, gapless) for part in parts))

    def _own_past(
        self,
        query: Tensor,
        now: KeyValues,
        positions: Positions | None,
        cache: KeyValueCache | None,
        at: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        key, value = now
        if positions is not None:
            offset = cache.length if cache is not None else 0
            query, key = positions.rotate(query, offset, at), positions.rotate(key, offset, at)
        if cache is not None:
            key, value = cache.append(key, value)
        return query, key, value
