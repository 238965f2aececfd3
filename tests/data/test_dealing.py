"""Laws of dealing: every row to one process, and to each about as much as to the others."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data.batches import BatchConfig, Batches, fixed_parts
from clearhead.data.corpus import Sentences, TokenisedPairs
from clearhead.data.dealing import deal, deal_whole, even_lots, part_of_rows

TOKENS = st.lists(st.integers(1, 90), min_size=1, max_size=60)
SIZES = st.integers(1, 9)


@given(TOKENS, SIZES)
def test_every_row_goes_to_one_process_in_its_order(tokens: list[int], size: int) -> None:
    rows, work = np.arange(len(tokens)) + 100, np.array(tokens)
    parts = [part_of_rows(rows, work, rank, size) for rank in range(size)]
    assert np.concatenate(parts).tolist() == rows.tolist()


@given(TOKENS, SIZES)
def test_no_share_is_further_from_the_even_one_than_the_longest_row(tokens: list[int], size: int) -> None:
    work = np.array(tokens)
    shares = [int(work[part_of_rows(np.arange(len(work)), work, rank, size)].sum()) for rank in range(size)]
    assert all(abs(share - work.sum() / size) <= work.max() for share in shares)


@given(st.lists(TOKENS, min_size=1, max_size=8), SIZES)
def test_all_processes_have_as_many_parts_and_every_row_once(batches: list[list[int]], size: int) -> None:
    ends = np.cumsum([0, *map(len, batches)])
    rows = [np.arange(start, end) for start, end in itertools.pairwise(ends)]
    work = np.concatenate([np.array(batch) for batch in batches])
    dealt = [[part for _, part in deal(rows, work, rank, size)] for rank in range(size)]
    assert len({len(parts) for parts in dealt}) == 1
    assert sorted(np.concatenate([row for parts in dealt for row in parts])) == list(range(len(work)))
    if len(batches) % size == 0:
        assert len(dealt[0]) == len(batches) // size, "whole batches where they can be shared out evenly"


@given(st.lists(st.integers(0, 90), min_size=1, max_size=8), SIZES)
def test_whole_batches_are_dealt_as_evenly_as_their_sizes_allow(amounts: list[int], size: int) -> None:
    amounts = amounts * size
    lots = even_lots(amounts, size)
    assert sorted(number for lot in lots for number in lot) == list(range(len(amounts)))
    assert {len(lot) for lot in lots} == {len(amounts) // size}
    sums = [sum(amounts[number] for number in lot) for lot in lots]
    assert max(sums) - min(sums) <= max(amounts) - min(amounts)


@given(st.integers(0, 20), SIZES)
def test_whole_batches_are_dealt_in_turn_with_empty_ones_at_the_end(count: int, size: int) -> None:
    batches = [np.array([number]) for number in range(count)]
    dealt = [deal_whole(batches, rank, size) for rank in range(size)]
    assert {len(parts) for parts in dealt} == {-(-count // size)}
    assert sorted(int(part[0]) for parts in dealt for part in parts if len(part)) == list(range(count))


def corpus(lengths: list[int]) -> TokenisedPairs:
    starts = np.cumsum([0, *lengths])[:-1]
    side = Sentences(np.full(sum(lengths), 9, dtype=np.uint16), starts, np.array(lengths, dtype=np.int32))
    return TokenisedPairs(side, side, np.arange(len(lengths)), 0)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), SIZES, st.integers(1, 4), st.integers(0, 99))
def test_a_step_is_the_same_for_any_number_of_processes(
    lengths: list[int], size: int, accumulate: int, seed: int
) -> None:
    batches = Batches(corpus(lengths), BatchConfig(max_tokens=60), seed)
    alone = itertools.islice(batches.shares(accumulate=accumulate), 6)
    team = [itertools.islice(batches.shares(accumulate=accumulate, rank=rank, size=size), 6) for rank in range(size)]
    for whole, *shares in zip(alone, *team, strict=True):
        assert {(share.cursor, share.tokens, share.examples, len(share.parts)) for share in shares} == {
            (whole.cursor, whole.tokens, whole.examples, len(shares[0].parts))
        }
        real = [part.batch for share in shares for part in share.parts if part.counts]
        assert sum(batch.num_answers for batch in real) == whole.tokens
        expected = np.concatenate([part.batch.indices for part in whole.parts])
        assert sorted(np.concatenate([batch.indices for batch in real])) == sorted(expected)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), SIZES)
def test_validation_is_shared_out_whole(lengths: list[int], size: int) -> None:
    pairs, config = corpus(lengths), BatchConfig(max_tokens=60)
    parts = [list(fixed_parts(pairs, config, rank, size)) for rank in range(size)]
    assert len({len(mine) for mine in parts}) == 1
    counted = [part.batch.indices for mine in parts for part in mine if part.counts]
    assert sorted(np.concatenate(counted)) == list(range(len(lengths)))
