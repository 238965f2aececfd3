"""Caches against plain concatenation, through growth and through every choice of rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clearhead.nn.cache import BlockCache, KeyValueCache, KeyValues, StackCache, select_rows

BATCH, HEADS, HEAD_DIM = 3, 2, 4


def entries(time: int, batch: int = BATCH) -> Tensor:
    return torch.randn(batch, HEADS, time, HEAD_DIM)


@settings(deadline=None, max_examples=30, derandomize=True)
@given(capacity=st.integers(0, 9), chunks=st.lists(st.integers(0, 7), min_size=1, max_size=6))
def test_appending_equals_concatenating(capacity: int, chunks: list[int]) -> None:
    cache = KeyValueCache(capacity)
    keys, values = [entries(time) for time in chunks], [entries(time) for time in chunks]
    for step, (key, value) in enumerate(zip(keys, values, strict=True), start=1):
        stored = cache.append(key, value)
        assert torch.equal(stored.key, torch.cat(keys[:step], dim=2))
        assert torch.equal(stored.value, torch.cat(values[:step], dim=2))
        assert cache.length == sum(chunks[:step])


def test_growth_doubles_and_so_moves_rarely() -> None:
    cache = KeyValueCache(capacity=4)
    places = {cache.append(entries(1), entries(1)).key.shape[2]: None for _ in range(4)}
    assert list(places) == [1, 2, 3, 4]
    homes = []
    for _ in range(60):
        home = cache.append(entries(1), entries(1)).key.untyped_storage()
        if not homes or home.data_ptr() != homes[-1].data_ptr():
            homes.append(home)
    assert [home.nbytes() // (4 * BATCH * HEADS * HEAD_DIM) for home in homes] == [8, 16, 32, 64]


@settings(deadline=None, max_examples=30, derandomize=True)
@given(before=st.integers(0, 5), after=st.integers(1, 5), rows=st.lists(st.integers(0, BATCH - 1), max_size=5))
def test_selected_rows_equal_a_cache_that_held_only_them(before: int, after: int, rows: list[int]) -> None:
    index = torch.tensor(rows, dtype=torch.long)
    cache = KeyValueCache(capacity=2)
    old, new = entries(before), entries(after, len(rows))
    cache.append(old, -old)
    stored = cache.select(index).append(new, -new)
    assert torch.equal(stored.key, torch.cat([old[index], new], dim=2))
    assert torch.equal(stored.value, -stored.key)


def test_selecting_leaves_the_original_alone() -> None:
    cache, old, new = KeyValueCache(), entries(3), entries(2)
    cache.append(old, old)
    chosen = cache.select(torch.tensor([2, 0, 0]))
    chosen.append(entries(2), entries(2))
    assert (cache.length, chosen.length) == (3, 5)
    assert torch.equal(cache.append(new, new).key, torch.cat([old, new], dim=2))


def test_an_empty_cache_can_be_selected_from() -> None:
    chosen, new = KeyValueCache().select(torch.tensor([1, 0])), entries(2, batch=2)
    assert chosen.length == 0
    assert torch.equal(chosen.append(new, new).key, new)


ROWS = pytest.mark.parametrize(
    "rows", [[2, 1, 0], [0, 1, 2], [1, 1, 1, 1], [0, 0, 1, 2, 2, 2], [2, 0, 2, 1, 0], [2, 0], [0], []]
)


def a_cache(own: list[Tensor], seen: Tensor, real: Tensor | None) -> StackCache:
    cache = StackCache((BlockCache(KeyValueCache(), KeyValues(seen, -seen)), BlockCache(KeyValueCache(), None)), real)
    for block, key in zip(cache.blocks, own, strict=True):
        block.attention.append(key, -key)
    return cache


def looked_at(cache: StackCache, rows: int) -> list[int]:
    return list(range(rows)) if cache.seats is None else cache.seats.memory.tolist()


@ROWS
def test_a_stack_cache_selects_in_every_block(rows: list[int]) -> None:
    index = torch.tensor(rows, dtype=torch.long)
    own, seen, real = [entries(4) for _ in range(2)], entries(5), torch.rand(BATCH, 5) < 0.5
    bias = torch.randn(BATCH, 1, 1, 5)
    cache = a_cache(own, seen, real)._replace(context_bias=bias)
    chosen = cache.select(index)
    assert chosen.length == cache.length == 4
    nothing = entries(0, batch=len(rows))
    for block, key in zip(chosen.blocks, own, strict=True):
        assert torch.equal(block.attention.append(nothing, nothing).key, key[index])
    memory, cross = looked_at(chosen, len(rows)), chosen.blocks[0].cross
    assert cross is not None
    assert chosen.context_real is not None and chosen.context_bias is not None
    assert torch.equal(cross.key[memory], seen[index])
    assert torch.equal(cross.value[memory], -seen[index])
    assert torch.equal(chosen.context_real[memory], real[index])
    assert torch.equal(chosen.context_bias[memory], bias[index])
    assert chosen.blocks[1].cross is None


@ROWS
def test_rows_sit_down_and_get_up_where_they_were(rows: list[int]) -> None:
    own, seen = [entries(1) for _ in range(2)], entries(5)
    seats = (
        a_cache(own, seen, None).select(torch.tensor([0, 0, 1, 2, 2])).select(torch.tensor(rows)).seats
        if rows
        else None
    )
    if seats is None:
        return
    x = torch.randn(len(rows), 2, HEAD_DIM)
    gathered = seats.gather(x)
    assert gathered.shape[1] == 2 * max(seats.memory.bincount())
    assert torch.equal(seats.scatter(gathered), x)
    for row, memory in enumerate(seats.memory.tolist()):
        assert any(torch.equal(place, x[row]) for place in gathered[memory].split(2))


def test_a_memory_is_stored_once_and_leaves_with_the_last_who_looks_at_it() -> None:
    own, seen = [entries(2, batch=8) for _ in range(2)], entries(5, batch=8)
    cache = a_cache(own, seen, None)
    shared = cache.select(torch.arange(8).repeat_interleave(4))
    assert shared.blocks[0].cross is cache.blocks[0].cross
    fewer = shared.select(torch.arange(4, 32))
    assert fewer.blocks[0].cross is cache.blocks[0].cross, "one idle memory is not worth moving the others"
    half = fewer.select(torch.arange(12, 28))
    assert half.blocks[0].cross is not None
    assert torch.equal(half.blocks[0].cross.key, seen[4:])
    assert looked_at(half, 16) == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert half.select(torch.arange(0, 16, 4)).seats is not None
    assert half.select(torch.tensor([4, 12])).seats is None, "each has its own again"


def test_rows_of_an_absent_tensor_are_absent() -> None:
    x, rows = torch.randn(3, 2), torch.tensor([2, 2, 0])
    assert select_rows(None, rows) is None
    assert torch.equal(select_rows(x, rows), x[[2, 2, 0]])
