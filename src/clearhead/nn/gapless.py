"""Sequences filled up with padding in, their tokens one after the other out, and back: padding is no work then.

All that treats tokens one by one (projections, norms, feed-forwards, dropout) can do without sequences. Attention alone
is given them, with zeros where there is no token; that takes no pass over memory more than laying heads apart does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Gapless:
    """Where each token of a stream without padding, (1, tokens, dim), stands in its sequence."""

    def __init__(self, real: Bool[Tensor, "batch time"], sequences: int | None = None) -> None:
        """There may be more `sequences` than those of the batch, without tokens, where a machine likes their number."""
        self.real = real
        self.batch, self.time = real.shape
        self.sequences = sequences or self.batch
        spare = real.new_zeros(self.sequences - self.batch, self.time)
        self.visible: Bool[Tensor, "sequences time"] = torch.cat([real, ~spare])
        """What may be looked at: tokens, and in spare sequences everything, so that all have something to see."""
        occupied = torch.cat([real, spare]).flatten()
        self._tokens, self._gaps = occupied.nonzero()[:, 0], (~occupied).nonzero()[:, 0]
        self._known: dict[tuple[str, int, int], Tensor] = {}

    def closed(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "1 tokens dim"]:
        """The tokens alone."""
        return self.merge_heads(x[:, None])

    def opened(self, x: Float[Tensor, "1 tokens dim"]) -> Float[Tensor, "batch time dim"]:
        """The tokens in their sequences again, and zeros for padding."""
        return self.split_heads(x, 1)[: self.batch, 0]

    def split_heads(
        self, x: Float[Tensor, "1 tokens width"], num_heads: int
    ) -> Float[Tensor, "sequences {num_heads} time _"]:
        """The heads of all sequences, and zeros for padding."""
        return _Laid.apply(x, self, num_heads)

    def merge_heads(self, x: Float[Tensor, "sequences heads time head_dim"]) -> Float[Tensor, "1 tokens width"]:
        """The heads of each token side by side again."""
        return _Taken.apply(x, self)

    def places(self, num_heads: int) -> Int[Tensor, "parts"]:
        """Where each head of each token lies when heads are laid apart."""
        return self._once("places", num_heads, lambda: self._lying(self._tokens, num_heads))

    def gaps(self, num_heads: int) -> Int[Tensor, "gaps"]:
        """The same for what there is no token for."""
        return self._once("gaps", num_heads, lambda: self._lying(self._gaps, num_heads))

    def sources(self, num_heads: int, step: int) -> Int[Tensor, "all_places"]:
        """What lies at each place: of each token's heads the first is `step` after that of the token before it."""

        def found() -> Tensor:
            tokens = torch.arange(len(self._tokens), device=self._tokens.device)
            parts = tokens[:, None] * step + torch.arange(num_heads, device=tokens.device)
            sources = parts.new_zeros(self.sequences * num_heads * self.time)
            sources[self.places(num_heads)] = parts.flatten()
            return sources

        return self._once("sources", num_heads, found, step)

    def _lying(self, places: Int[Tensor, "some"], num_heads: int) -> Int[Tensor, "parts"]:
        heads = places[:, None] // self.time * num_heads + torch.arange(num_heads, device=places.device)
        return (heads * self.time + places[:, None] % self.time).flatten()

    def _once(self, what: str, num_heads: int, found: Callable[[], Tensor], step: int = 0) -> Tensor:
        key = what, num_heads, step
        if key not in self._known:
            self._known[key] = found()
        return self._known[key]


class _Laid(torch.autograd.Function):
    """Heads of tokens → heads of sequences."""

    @staticmethod
    def forward(context: Any, x: Tensor, gapless: Gapless, num_heads: int) -> Tensor:
        context.gapless = gapless
        shape = gapless.sequences, num_heads, gapless.time, x.shape[2] // num_heads
        if not x.shape[1]:
            return x.new_zeros(shape)
        rows, step = _as_rows(x, num_heads)
        laid = rows.index_select(0, gapless.sources(num_heads, step))
        return laid.index_fill_(0, gapless.gaps(num_heads), 0.0).view(shape)

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _Taken.apply(grads[0], context.gapless), None, None


class _Taken(torch.autograd.Function):
    """Heads of sequences → heads of tokens; spare sequences need not be there."""

    @staticmethod
    def forward(context: Any, x: Tensor, gapless: Gapless) -> Tensor:
        context.gapless, context.shape = gapless, x.shape
        num_heads, head_dim = x.shape[1], x.shape[3]
        taken = x.reshape(-1, head_dim).index_select(0, gapless.places(num_heads))
        return taken.view(1, len(taken) // num_heads, num_heads * head_dim)

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor, None]:
        batch, num_heads = context.shape[:2]
        return _Laid.apply(grads[0], context.gapless, num_heads)[:batch], None


def _as_rows(x: Float[Tensor, "1 tokens width"], num_heads: int) -> tuple[Float[Tensor, "rows head_dim"], int]:
    """Heads one below the other, and how many rows there are from one token to the next; no copy if it can be."""
    count, head_dim = x.shape[1], x.shape[2] // num_heads
    if x.stride(2) != 1 or x.stride(1) % head_dim:
        x = x.contiguous()
    # What several layers were asked for lies side by side: then the others' heads are between.
    step = x.stride(1) // head_dim
    return x.as_strided(((count - 1) * step + num_heads, head_dim), (head_dim, 1)), step
