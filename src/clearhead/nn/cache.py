"""Keys and values of the steps so far in, all of them out: what makes each generated token cost one step and not all.

A cache is an argument, never module state. It grows in place by doubling, so appending copies each entry about once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
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


class StackCache(NamedTuple):
    """What a stack keeps between steps, block by block."""

    blocks: tuple[BlockCache, ...]

    @property
    def length(self) -> int:
        """How many positions are stored."""
        return self.blocks[0].attention.length

    def select(self, rows: Int[Tensor, "kept"]) -> StackCache:
        """These rows of every block, in this order."""
        return StackCache(
            tuple(
                BlockCache(block.attention.select(rows), block.cross.select(rows) if block.cross is not None else None)
                for block in self.blocks
            )
        )


def select_rows(x: Tensor | None, rows: Int[Tensor, "kept"]) -> Tensor | None:
    """These rows of a tensor that may be absent."""
    return None if x is None else torch.index_select(x, 0, rows)
