"""Keys and values of the steps so far in, all of them out: what makes each generated token cost one step and not all.

A cache is an argument, never module state. It grows in place by doubling, so appending copies each entry about once.
What is looked across at is stored once, however many rows look at it: the hypotheses of one sentence share a memory,
and sit at it side by side as if they were positions of one query.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class KeyValues(NamedTuple):
    """Keys and values that do not change: what cross attention looks at during generation."""

    key: Float[Tensor, "batch kv_heads key head_dim"]
    value: Float[Tensor, "batch kv_heads key head_dim"]

    def select(self, rows: Int[Tensor, "kept"]) -> KeyValues:
        """These rows, in this order."""
        return KeyValues(self.key.index_select(0, rows), self.value.index_select(0, rows))


class KeyValueCache:
    """The keys and values of one self-attention layer, growing by one call of `append` per step."""

    def __init__(self, capacity: int = 16) -> None:
        self._capacity = max(1, capacity)
        self._buffer: KeyValues | None = None
        self.length = 0

    def append(
        self,
        key: Float[Tensor, "batch kv_heads time head_dim"],
        value: Float[Tensor, "batch kv_heads time head_dim"],
    ) -> KeyValues:
        """Store the newest keys and values and return all, the oldest first."""
        end = self.length + key.shape[2]
        buffer = self._room_for(end, key)
        buffer.key[:, :, self.length : end] = key
        buffer.value[:, :, self.length : end] = value
        self.length = end
        return KeyValues(buffer.key[:, :, :end], buffer.value[:, :, :end])

    def select(self, rows: Int[Tensor, "kept"]) -> KeyValueCache:
        """A cache that holds these rows, in this order; repeats are fine."""
        chosen = KeyValueCache(self._capacity)
        chosen.length = self.length
        if self._buffer is not None:
            chosen._buffer = self._buffer.select(rows)
        return chosen

    def _room_for(self, length: int, like: Tensor) -> KeyValues:
        if self._buffer is not None and length <= self._buffer.key.shape[2]:
            return self._buffer
        while self._capacity < length:
            self._capacity *= 2
        batch, kv_heads, _, head_dim = like.shape
        grown = KeyValues(*(like.new_empty(batch, kv_heads, self._capacity, head_dim) for _ in range(2)))
        if self._buffer is not None:
            for new, old in zip(grown, self._buffer, strict=True):
                new[:, :, : self.length] = old[:, :, : self.length]
        self._buffer = grown
        return grown


class BlockCache(NamedTuple):
    """What one block keeps between steps: its own growing past, and the fixed memory it looks across at."""

    attention: KeyValueCache
    cross: KeyValues | None = None


class Seats(NamedTuple):
    """Which memory each row looks at, where that is not simply its own."""

    memory: Int[Tensor, "rows"]
    grid: Int[Tensor, "batch width"]
    """The row on each seat of each memory; seats that nobody has hold some row, whose answer is not read."""
    seat: Int[Tensor, "rows"]
    """Where each row sits, counted through all memories."""

    @staticmethod
    def of(memory: Int[Tensor, "rows"], count: int) -> Seats:
        """Seat the rows at `count` memories; rows may come in any order."""
        rows = torch.arange(len(memory), device=memory.device)
        taken = torch.bincount(memory, minlength=count)
        width = int(taken.max())
        first = taken.cumsum(0) - taken
        order = memory.argsort(stable=True)
        seat = torch.empty_like(memory)
        seat[order] = memory[order] * width + rows - first[memory[order]]
        grid = memory.new_zeros(count * width).scatter_(0, seat, rows)
        return Seats(memory, grid.view(count, width), seat)

    def gather(self, x: Float[Tensor, "rows time dim"]) -> Float[Tensor, "batch query dim"]:
        """The rows of each memory side by side, as one query."""
        return x.index_select(0, self.grid.flatten()).view(len(self.grid), -1, x.shape[2])

    def scatter(self, x: Float[Tensor, "batch query dim"]) -> Float[Tensor, "rows time dim"]:
        """Each row's part of what its memory answered."""
        return x.reshape(self.grid.numel(), -1, x.shape[2]).index_select(0, self.seat)

    def apart(self, weights: Float[Tensor, "batch heads query key"]) -> Float[Tensor, "rows heads time key"]:
        """Each row's own weights, of those that the rows of each memory have side by side."""
        by_seat = weights.unflatten(2, (self.grid.shape[1], -1)).transpose(1, 2).flatten(0, 1)
        return by_seat.index_select(0, self.seat)


CROWDED = 0.75
"""Memories are moved together when fewer of them than this share are still looked at."""


class StackCache(NamedTuple):
    """What a stack keeps between steps, block by block."""

    blocks: tuple[BlockCache, ...]
    context_real: Bool[Tensor, "batch source"] | None = None
    """Which positions of the memories are not padding, None when all are."""
    seats: Seats | None = None
    """Who looks at which memory, None when each row has its own."""
    context_bias: Float[Tensor, "batch 1 1 source"] | None = None
    """What is added to the scores of the memories' positions, None when all count alike."""

    @property
    def length(self) -> int:
        """How many positions are stored."""
        return self.blocks[0].attention.length

    @property
    def remembers(self) -> bool:
        """Whether there are memories to look across at."""
        return any(block.cross is not None for block in self.blocks)

    def select(self, rows: Int[Tensor, "kept"]) -> StackCache:
        """These rows, in this order; their own past is copied, memories stay where they are until many are idle."""
        blocks = tuple(BlockCache(block.attention.select(rows), block.cross) for block in self.blocks)
        count = next((len(block.cross.key) for block in blocks if block.cross is not None), None)
        if count is None:
            return self._replace(blocks=blocks, seats=None)
        memory = rows if self.seats is None else self.seats.memory.index_select(0, rows)
        is_used = torch.zeros(count, dtype=torch.bool, device=rows.device).index_fill_(0, memory, True)
        kept = is_used.nonzero()[:, 0]
        if len(kept) <= CROWDED * count:
            return self._moved_together(blocks, kept, (is_used.cumsum(0) - 1).index_select(0, memory))
        return self._replace(blocks=blocks, seats=Seats.of(memory, count))

    def _moved_together(
        self, blocks: tuple[BlockCache, ...], kept: Int[Tensor, "memories"], memory: Int[Tensor, "rows"]
    ) -> StackCache:
        moved = tuple(
            BlockCache(block.attention, block.cross.select(kept) if block.cross is not None else None)
            for block in blocks
        )
        is_own = torch.equal(memory, torch.arange(len(kept), device=memory.device))
        return StackCache(
            moved,
            select_rows(self.context_real, kept),
            None if is_own else Seats.of(memory, len(kept)),
            select_rows(self.context_bias, kept),
        )


def select_rows(x: Tensor | None, rows: Int[Tensor, "kept"]) -> Tensor | None:
    """These rows of a tensor that may be absent."""
    return None if x is None else torch.index_select(x, 0, rows)
