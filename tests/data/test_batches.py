"""Laws of the order and shape of batches."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.config import build
from clearhead.data.batches import (
    START,
    BatchConfig,
    Batches,
    Cursor,
    epoch_plan,
    fixed_parts,
    fixed_plan,
)
from clearhead.data.corpus import PairBatch, Sentences, TokenisedPairs, tokenise
from clearhead.errors import ConfigError, DataError
from clearhead.text import BOS_ID, EOS_ID, PAD_ID, TokenizerConfig, TokenizerPair


def sentences(lengths: list[int]) -> Sentences:
    ends = np.cumsum([0, *lengths])
    ids = (10 + np.arange(ends[-1]) % 90).astype(np.uint16)
    return Sentences(ids, ends[:-1], np.array(lengths, dtype=np.int32))


def corpus(lengths: list[tuple[int, int]]) -> TokenisedPairs:
    source, target = sentences([source for source, _ in lengths]), sentences([target for _, target in lengths])
    return TokenisedPairs(source, target, np.arange(1, len(lengths) + 1), 0)


def random_corpus(size: int, seed: int = 0) -> TokenisedPairs:
    random = np.random.default_rng(seed)
    source = random.integers(1, 40, size)
    target = np.maximum(1, source + random.integers(-4, 5, size))
    return corpus(list(zip(source.tolist(), target.tolist(), strict=True)))


LENGTHS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=60)
CONFIGS = st.builds(
    BatchConfig,
    max_tokens=st.integers(1, 120),
    batch_size=st.none() | st.integers(1, 9),
    pool=st.integers(1, 5),
)


def widest(pairs: TokenisedPairs, indices: np.ndarray) -> int:
    return int(max(pairs.source_lengths[indices].max(), pairs.target_lengths[indices].max())) + 1


def stream(batches: Batches, cursor: Cursor = START) -> Iterator[tuple[Cursor, PairBatch]]:
    """Steps of one batch, all for one process."""
    return ((share.cursor, share.parts[0].batch) for share in batches.shares(cursor))


def fixed_batches(pairs: TokenisedPairs, config: BatchConfig) -> list[PairBatch]:
    return [part.batch for part in fixed_parts(pairs, config)]


def same(one: PairBatch, other: PairBatch) -> bool:
    names = ("source", "target", "source_lengths", "target_lengths", "indices")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


# The plan.


@given(LENGTHS, CONFIGS, st.integers(0, 2**32), st.integers(0, 9))
def test_every_pair_comes_once_in_an_epoch(
    lengths: list[tuple[int, int]], config: BatchConfig, seed: int, epoch: int
) -> None:
    pairs = corpus(lengths)
    for plan in (epoch_plan(pairs, config, seed, epoch), fixed_plan(pairs, config)):
        assert sorted(np.concatenate(list(plan))) == list(range(len(lengths)))
        assert all(len(batch) > 0 for batch in plan)


@given(LENGTHS, st.integers(1, 120), st.integers(1, 5), st.integers(0, 99))
def test_no_batch_exceeds_the_budget_unless_it_is_one_long_pair(
    lengths: list[tuple[int, int]], max_tokens: int, pool: int, seed: int
) -> None:
    pairs = corpus(lengths)
    config = BatchConfig(max_tokens=max_tokens, pool=pool)
    for plan in (epoch_plan(pairs, config, seed, 0), fixed_plan(pairs, config)):
        for batch in plan:
            assert len(batch) == 1 or len(batch) * widest(pairs, batch) <= max_tokens


@given(LENGTHS, st.integers(1, 120))
def test_a_batch_is_as_large_as_the_budget_allows(lengths: list[tuple[int, int]], max_tokens: int) -> None:
    pairs = corpus(lengths)
    for batch, following in itertools.pairwise(fixed_plan(pairs, BatchConfig(max_tokens=max_tokens))):
        one_more = np.append(batch, following[0])
        assert len(one_more) * widest(pairs, one_more) > max_tokens


def test_a_batch_may_fill_its_budget_to_the_last_token() -> None:
    pairs = corpus([(9, 3)] * 4 + [(3, 9)] * 4)
    assert [len(batch) for batch in fixed_plan(pairs, BatchConfig(max_tokens=40))] == [4, 4]
    assert [len(batch) for batch in fixed_plan(pairs, BatchConfig(max_tokens=39))] == [3, 3, 2]


@given(LENGTHS, st.integers(1, 9), st.integers(1, 5), st.integers(0, 99))
def test_batch_size_counts_pairs(lengths: list[tuple[int, int]], batch_size: int, pool: int, seed: int) -> None:
    plan = epoch_plan(corpus(lengths), BatchConfig(batch_size=batch_size, pool=pool), seed, 0)
    full, rest = divmod(len(lengths), batch_size)
    assert sorted(map(len, plan)) == sorted([batch_size] * full + [rest] * bool(rest))


@given(LENGTHS, CONFIGS, st.integers(0, 99), st.integers(0, 9))
def test_the_same_seed_and_epoch_give_the_same_order(
    lengths: list[tuple[int, int]], config: BatchConfig, seed: int, epoch: int
) -> None:
    one, other = (epoch_plan(corpus(lengths), config, seed, epoch) for _ in range(2))
    assert [batch.tolist() for batch in one] == [batch.tolist() for batch in other]


def test_another_epoch_or_seed_gives_other_batches_in_another_order() -> None:
    pairs = random_corpus(300)
    orders = [
        [tuple(batch.tolist()) for batch in epoch_plan(pairs, BatchConfig(max_tokens=200, pool=3), seed, epoch)]
        for seed, epoch in ((1, 0), (1, 1), (2, 0), (0, 1))
    ]
    assert len({tuple(order) for order in orders}) == len(orders)
    for one, other in itertools.combinations(orders, 2):
        assert len({frozenset(batch) for batch in one} & {frozenset(batch) for batch in other}) < len(one) / 2


def test_batches_do_not_come_sorted_by_length() -> None:
    pairs = random_corpus(2000)
    widths = np.array([widest(pairs, batch) for batch in epoch_plan(pairs, BatchConfig(max_tokens=400), 0, 0)])
    assert abs(np.corrcoef(np.arange(len(widths)), widths)[0, 1]) < 0.3


def test_shuffling_follows_raw_bits_which_numpy_never_changes() -> None:
    pairs = corpus([(1, 1)] * 7)
    bits = np.random.PCG64(np.random.SeedSequence([5, 2])).random_raw(7)
    (batch,) = epoch_plan(pairs, BatchConfig(), 5, 2)
    assert batch.tolist() == sorted(range(7), key=lambda index: int(bits[index]))


def test_buckets_waste_far_less_than_unsorted_batches() -> None:
    pairs = random_corpus(3000)

    def padding(batches: list[np.ndarray]) -> float:
        real = sum(int(pairs.source_lengths[batch].sum() + pairs.target_lengths[batch].sum()) for batch in batches)
        held = sum(
            len(batch) * int(pairs.source_lengths[batch].max() + pairs.target_lengths[batch].max()) for batch in batches
        )
        return 1 - real / held

    unsorted = np.split(np.arange(3000), range(30, 3000, 30))
    assert padding(list(epoch_plan(pairs, BatchConfig(max_tokens=800), 0, 0))) < 0.12
    assert padding(list(epoch_plan(pairs, BatchConfig(batch_size=30), 0, 0))) < 0.12
    assert padding(unsorted) > 0.4


def test_a_large_epoch_is_planned_as_flat_arrays() -> None:
    size = 200_000
    lengths = np.random.default_rng(0).integers(1, 100, (2, size)).astype(np.int32)
    sides = [Sentences(np.zeros(1, np.uint16), np.zeros(size, np.int64), side) for side in lengths]
    plan = epoch_plan(TokenisedPairs(sides[0], sides[1], np.arange(size), 0), BatchConfig(), 0, 0)
    assert plan.order.shape == (size,)
    assert np.array_equal(np.sort(plan.order), np.arange(size))
    assert (plan.ends - plan.starts).sum() == size


def test_planning_takes_a_few_bytes_a_pair() -> None:
    size = 100_000
    lengths = np.random.default_rng(0).integers(1, 100, (2, size)).astype(np.int32)
    sides = [Sentences(np.zeros(1, np.uint16), np.zeros(size, np.int64), side) for side in lengths]
    pairs = TokenisedPairs(sides[0], sides[1], np.arange(size), 0)
    tracemalloc.start()
    try:
        epoch_plan(pairs, BatchConfig(), 0, 0)
        assert tracemalloc.get_traced_memory()[1] / size < 40
    finally:
        tracemalloc.stop()


def test_a_plan_can_be_dealt_out_to_many_machines() -> None:
    plan = epoch_plan(random_corpus(200), BatchConfig(max_tokens=150), 0, 0)
    dealt = [plan[rank::3] for rank in range(3)]
    assert sum(map(len, dealt)) == len(plan)
    assert np.array_equal(dealt[1][2], plan[1 + 2 * 3])
    assert np.array_equal(plan[-1], plan[len(plan) - 1])


# The stream.


def test_resumed_from_every_cursor_equals_uninterrupted() -> None:
    pairs = random_corpus(60)
    config = BatchConfig(max_tokens=100, pool=2)
    whole = list(itertools.islice(stream(Batches(pairs, config, seed=3)), 40))
    assert whole[-1][0].epoch >= 1
    cursors = [START, *(cursor for cursor, _ in whole)]
    for done, cursor in enumerate(cursors):
        resumed = list(itertools.islice(stream(Batches(pairs, config, seed=3), cursor), len(whole) - done))
        for (cursor_then, then), (cursor_now, now) in zip(whole[done:], resumed, strict=True):
            assert cursor_then == cursor_now
            assert same(then, now)


def test_a_stream_runs_through_epoch_after_epoch() -> None:
    pairs = random_corpus(50)
    batches = Batches(pairs, BatchConfig(max_tokens=200), seed=0)
    sizes = [batches.num_batches(epoch) for epoch in range(3)]
    steps = stream(batches)
    for epoch, size in enumerate(sizes):
        taken = list(itertools.islice(steps, size))
        assert sorted(np.concatenate([batch.indices for _, batch in taken])) == list(range(50))
        assert [cursor for cursor, _ in taken[:-1]] == [Cursor(epoch, batch) for batch in range(1, size)]
        assert taken[-1][0] == Cursor(epoch + 1, 0)
        assert {cursor.epochs_begun for cursor, _ in taken} == {epoch + 1}


def test_the_end_of_an_epoch_is_the_start_of_the_next() -> None:
    batches = Batches(random_corpus(50), BatchConfig(max_tokens=200), seed=0)
    one = next(stream(batches, Cursor(0, batches.num_batches(0))))
    other = next(stream(batches, Cursor(1, 0)))
    assert one[0] == other[0] and same(one[1], other[1])


def test_two_streams_do_not_disturb_each_other() -> None:
    batches = Batches(random_corpus(50), BatchConfig(max_tokens=200), seed=0)
    alone = [batch for _, batch in itertools.islice(stream(batches), 20)]
    first, second = stream(batches), stream(batches, Cursor(5, 0))
    for batch in alone:
        next(second)
        assert same(next(first)[1], batch)


def test_a_cursor_that_does_not_fit_the_data_is_refused() -> None:
    batches = Batches(corpus([(1, 1)] * 3), BatchConfig(), seed=0)
    with pytest.raises(DataError, match=r"cannot go on from batch 7 of epoch 2, which has 1: the data or the batch"):
        stream(batches, Cursor(2, 7))


def test_an_empty_corpus_is_refused_for_training_and_gives_no_validation_batch() -> None:
    with pytest.raises(DataError, match="there are no examples to train on"):
        Batches(corpus([]), BatchConfig(), seed=0)
    assert fixed_batches(corpus([]), BatchConfig()) == []


def test_impossible_settings_are_refused() -> None:
    for key in ("max_tokens", "batch_size", "pool"):
        with pytest.raises(ConfigError, match=f"'{key}' = 0: input should be greater than or equal to 1"):
            build(BatchConfig, {key: 0}, "batches")


# One batch.


def test_a_batch_has_control_tokens_and_padding_where_they_belong() -> None:
    batch = corpus([(2, 1), (0, 3)]).batch(np.array([1, 0]))
    assert batch.source.tolist() == [[EOS_ID, PAD_ID, PAD_ID], [10, 11, EOS_ID]]
    assert batch.target.tolist() == [[BOS_ID, 11, 12, 13, EOS_ID], [BOS_ID, 10, EOS_ID, PAD_ID, PAD_ID]]
    assert batch.source_lengths.tolist() == [1, 3]
    assert batch.target_lengths.tolist() == [4, 2]
    assert batch.indices.tolist() == [1, 0]
    assert {array.dtype for array in vars(batch).values()} == {np.dtype(np.int64)}


@given(LENGTHS)
def test_a_batch_equals_a_loop_over_its_sentences(lengths: list[tuple[int, int]]) -> None:
    pairs = corpus(lengths)
    batch = pairs.batch(np.arange(len(lengths))[::-1])
    for row, index in enumerate(reversed(range(len(lengths)))):
        source = [*pairs.source(index), EOS_ID]
        target = [BOS_ID, *pairs.target(index), EOS_ID]
        assert batch.source[row].tolist() == source + [PAD_ID] * (batch.source.shape[1] - len(source))
        assert batch.target[row].tolist() == target + [PAD_ID] * (batch.target.shape[1] - len(target))
        assert (batch.source_lengths[row], batch.target_lengths[row]) == (len(source), len(target) - 1)
    assert batch.num_answers == (batch.target[:, 1:] != PAD_ID).sum()
    assert batch.source_is_full == (PAD_ID not in batch.source)
    assert batch.target_is_full == (PAD_ID not in batch.target)


def test_the_answers_are_the_inputs_one_token_ahead() -> None:
    batch = corpus([(2, 3), (2, 3)]).batch(np.arange(2))
    inputs, answers = batch.target[:, :-1], batch.target[:, 1:]
    assert batch.target_is_full
    assert np.array_equal(inputs[:, 1:], answers[:, :-1])
    assert (inputs[:, 0] == BOS_ID).all() and (answers[:, -1] == EOS_ID).all()


def test_validation_batches_are_sorted_and_can_be_put_back_in_order() -> None:
    pairs = random_corpus(100)
    batches = fixed_batches(pairs, BatchConfig(max_tokens=150))
    widths = [max(batch.source.shape[1], batch.target.shape[1] - 1) for batch in batches]
    assert widths == sorted(widths)
    results = np.concatenate([batch.target_lengths for batch in batches])
    in_order = np.empty(100, dtype=np.int64)
    in_order[np.concatenate([batch.indices for batch in batches])] = results
    assert in_order.tolist() == (pairs.target_lengths + 1).tolist()


def test_a_hold_out_is_batched_like_a_corpus_of_its_own(tmp_path: Path) -> None:
    tokenizers = TokenizerPair.train(TokenizerConfig(kind="byte"), [], [])
    texts = [(line, "a" * line, "b" * (line % 5)) for line in range(1, 20)]
    held_out = tokenise(texts, tokenizers, tmp_path / "corpus", max_len=100).subset(np.array([3, 8, 15]))
    batches = fixed_batches(held_out, BatchConfig(max_tokens=30))
    assert np.concatenate([batch.indices for batch in batches]).tolist() == [0, 1, 2]
    decoded = [tokenizers.source.decode(row) for batch in batches for row in batch.source]
    assert decoded == ["a" * 4, "a" * 9, "a" * 16]
