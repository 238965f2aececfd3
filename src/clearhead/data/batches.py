"""Tokenised pairs in, padded batches out, in an order that depends only on the seed and the epoch and can be resumed.

An epoch is planned as a whole: shuffle, cut into pools, sort each pool by length, cut it into batches, shuffle the
batches. The plan is two flat arrays and is the same on every machine and for any number of processes; each step of it
is then dealt out to them, so a run may go on with more or fewer than it began with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.random import PCG64, SeedSequence
from numpy.typing import NDArray
from pydantic import Field

from clearhead.config import Record
from clearhead.data.corpus import TokenisedPairs
from clearhead.data.dealing import deal, deal_whole
from clearhead.errors import DataError
from clearhead.text import BOS_ID, EOS_ID, PAD_ID

Integers = NDArray[np.integer[Any]]


class BatchConfig(Record):
    """How many sentence pairs make a batch."""

    max_tokens: int = Field(default=4096, ge=1)
    """The most a batch may hold: pairs x the longest sentence among them, padding and </s> included. A pair that is
    longer on its own is a batch on its own."""

    batch_size: int | None = Field(default=None, ge=1)
    """This many pairs in every batch, whatever their length, in place of max_tokens."""

    pool: int = Field(default=100, ge=1)
    """How many batches' worth of shuffled pairs are sorted by length together: more means less padding, fewer means
    more random batches."""


@dataclass(frozen=True, eq=False)
class PairBatch:
    """Sentence pairs of similar length as two padded arrays of ids.

    A row of `source` is the sentence and `</s>`; a row of `target` is `<s>`, the sentence and `</s>`; both are padded
    on the right. Teacher forcing: the decoder is given `target[:, :-1]` and must answer `target[:, 1:]`, the same
    sentence one token ahead, so that it learns every position at once from the true words before it.
    """

    source: NDArray[np.int64]
    """(batch, source_time)"""

    target: NDArray[np.int64]
    """(batch, target_time + 1)"""

    source_lengths: NDArray[np.int64]
    """Tokens of each row of `source`, `</s>` included, padding not."""

    target_lengths: NDArray[np.int64]
    """Answers of each row of `target`: its tokens and `</s>`."""

    indices: NDArray[np.int64]
    """Where in the corpus each row comes from."""

    @property
    def num_target_tokens(self) -> int:
        """How many answers the batch asks for; the loss is a mean over these."""
        return int(self.target_lengths.sum())

    @property
    def source_is_full(self) -> bool:
        """Whether no row of `source` has padding, so that no mask is needed."""
        return bool((self.source_lengths == self.source.shape[1]).all())

    @property
    def target_is_full(self) -> bool:
        """Whether no row of `target` has padding."""
        return bool((self.target_lengths == self.target.shape[1] - 1).all())


def pair_batch(pairs: TokenisedPairs, indices: Integers) -> PairBatch:
    """Pad some pairs to the longest of them."""
    source_lengths = pairs.source_lengths[indices].astype(np.int64) + 1
    target_lengths = pairs.target_lengths[indices].astype(np.int64) + 1
    source = np.full((len(indices), source_lengths.max()), PAD_ID, dtype=np.int64)
    target = np.full((len(indices), target_lengths.max() + 1), PAD_ID, dtype=np.int64)
    target[:, 0] = BOS_ID
    for row, index in enumerate(indices):
        source[row, : source_lengths[row] - 1] = pairs.source(index)
        target[row, 1 : target_lengths[row]] = pairs.target(index)
    rows = np.arange(len(indices))
    source[rows, source_lengths - 1] = EOS_ID
    target[rows, target_lengths] = EOS_ID
    return PairBatch(source, target, source_lengths, target_lengths, np.asarray(indices, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Plan(Sequence[NDArray[np.int64]]):
    """A sequence of batches, each an array of positions in the corpus."""

    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, batch: int) -> NDArray[np.int64]: ...
    @overload
    def __getitem__(self, batch: slice) -> Plan: ...
    def __getitem__(self, batch: int | slice) -> NDArray[np.int64] | Plan:
        if isinstance(batch, slice):
            return Plan(self.order, self.starts[batch], self.ends[batch])
        return self.order[self.starts[batch] : self.ends[batch]]


def epoch_plan(pairs: TokenisedPairs, config: BatchConfig, seed: int, epoch: int) -> Plan:
    """Every pair once, in batches of similar length, in an order that follows from seed and epoch alone."""
    bits = PCG64(SeedSequence([seed, epoch]))
    order = _shuffled(len(pairs), bits)
    longest = _longest(pairs)
    size = _pool_size(longest, config)
    cuts = []
    for start in range(0, len(order), size):
        pool = order[start : start + size]
        pool[:] = pool[_by_length(pairs, pool)]
        cuts.append(start + _cut(longest[pool], config))
    plan = _plan(order, cuts)
    shuffled = _shuffled(len(plan), bits)
    return Plan(order, plan.starts[shuffled], plan.ends[shuffled])


def fixed_plan(pairs: TokenisedPairs, config: BatchConfig) -> Plan:
    """Every pair once, shortest first, with no chance involved."""
    order = _by_length(pairs, np.arange(len(pairs)))
    return _plan(order, [_cut(_longest(pairs)[order], config)])


class Part(NamedTuple):
    """A batch, or what one process does of it."""

    batch: PairBatch
    counts: bool
    """False if nothing was left to do: then `batch` is one row that others have too, and its loss is worth nothing."""


class Share(NamedTuple):
    """What one process does of a step."""

    cursor: Cursor
    """Where the next step begins, for all processes alike."""
    tokens: int
    """How many answers the whole step asks for, over all processes."""
    parts: tuple[Part, ...]
    """As many as every other process has."""
    examples: tuple[int, ...]
    """A few of the pairs of the whole step, to be named when something goes wrong."""


def fixed_parts(pairs: TokenisedPairs, config: BatchConfig, rank: int = 0, size: int = 1) -> Iterator[Part]:
    """This process's share of the batches for validation: always the same, with no chance involved."""
    plan = fixed_plan(pairs, config)
    return (_part(pairs, rows, plan[0]) for rows in deal_whole(plan, rank, size))


def _part(pairs: TokenisedPairs, rows: Integers, batch: Integers) -> Part:
    """The rows as a batch; if there are none, the first row of the batch they were to come from, for nothing."""
    return Part(pair_batch(pairs, rows if len(rows) else batch[:1]), bool(len(rows)))


def _shuffled(count: int, bits: PCG64) -> NDArray[np.int64]:
    # By sorting raw bits: numpy promises these for all versions to come, and `Generator.permutation` it does not.
    return np.argsort(bits.random_raw(count), kind="stable")


def _longest(pairs: TokenisedPairs) -> NDArray[np.int32]:
    return np.maximum(pairs.source_lengths, pairs.target_lengths) + np.int32(1)


def _pool_size(longest: NDArray[np.int32], config: BatchConfig) -> int:
    if config.batch_size is not None:
        return config.pool * config.batch_size
    tokens = int(longest.sum(dtype=np.int64))
    return max(1, config.pool * config.max_tokens * len(longest) // max(1, tokens))


def _by_length(pairs: TokenisedPairs, indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """The order that sorts by the longer side, then by the source, then by the target."""
    source, target = pairs.source_lengths[indices], pairs.target_lengths[indices]
    return np.lexsort((target, source, np.maximum(source, target)))


def _cut(longest: NDArray[np.int32], config: BatchConfig) -> NDArray[np.int64]:
    """Where batches begin among pairs sorted by length, each batch as large as it may be."""
    if config.batch_size is not None:
        return np.arange(0, len(longest), config.batch_size)
    starts: list[int] = []
    start = 0
    while start < len(longest):
        starts.append(start)
        most = config.max_tokens // int(longest[start])
        cost = longest[start : start + most] * np.arange(1, most + 1)[: len(longest) - start]
        start += max(1, int(np.searchsorted(cost, config.max_tokens, side="right")))
    return np.array(starts, dtype=np.int64)


def _plan(order: NDArray[np.int64], cuts: Sequence[NDArray[np.int64]]) -> Plan:
    bounds = np.concatenate([*cuts, [len(order)]])
    return Plan(order, bounds[:-1], bounds[1:])


@dataclass(frozen=True)
class Cursor:
    """The place of the next batch: which epoch, and which of its batches, both counted from 0."""

    epoch: int = 0
    batch: int = 0


START = Cursor()


class Batches:
    """Training batches without end, epoch after epoch, from any cursor."""

    def __init__(self, pairs: TokenisedPairs, config: BatchConfig, seed: int) -> None:
        if len(pairs) == 0:
            raise DataError("there are no sentence pairs to train on: all were dropped, or the corpus is empty")
        self.pairs = pairs
        self.config = config
        self.seed = seed
        self._latest: tuple[int, Plan] | None = None

    def epoch(self, epoch: int) -> Plan:
        """The batches of one epoch, as positions in the corpus; the latest plan is remembered."""
        if self._latest is None or self._latest[0] != epoch:
            self._latest = epoch, epoch_plan(self.pairs, self.config, self.seed, epoch)
        return self._latest[1]

    def num_batches(self, epoch: int) -> int:
        """How many batches one epoch has; it may differ a little from epoch to epoch."""
        return len(self.epoch(epoch))

    def shares(self, cursor: Cursor = START, accumulate: int = 1, rank: int = 0, size: int = 1) -> Iterator[Share]:
        """Steps of `accumulate` batches from the cursor on, as far as one of `size` processes has to do with them."""
        planned = self.num_batches(cursor.epoch)
        if not 0 <= cursor.batch <= planned:
            raise DataError(
                f"cannot go on from batch {cursor.batch} of epoch {cursor.epoch}, which has {planned}: "
                "the data or the batch settings are not those of the interrupted run"
            )
        return self._shares(cursor, accumulate, rank, size)

    def _shares(self, cursor: Cursor, accumulate: int, rank: int, size: int) -> Iterator[Share]:
        pairs, places = self.pairs, self._places(cursor)
        work = pairs.source_lengths.astype(np.int64) + pairs.target_lengths + 2
        while True:
            pulled = list(islice(places, accumulate))
            batches = [rows for _, rows in pulled]
            # Padded last: a process pads only what is its own.
            mine = deal(batches, work, rank, size)
            yield Share(
                cursor=pulled[-1][0],
                tokens=sum(int(pairs.target_lengths[rows].sum()) + len(rows) for rows in batches),
                parts=tuple(_part(pairs, rows, batches[0]) for rows in mine),
                examples=tuple(int(row) for rows in batches for row in rows[:3]),
            )

    def _places(self, cursor: Cursor) -> Iterator[tuple[Cursor, Integers]]:
        """Batches as positions in the corpus, each with the cursor that continues after it."""
        while True:
            plan = self.epoch(cursor.epoch)
            for batch in range(cursor.batch, len(plan)):
                after = Cursor(cursor.epoch, batch + 1) if batch + 1 < len(plan) else Cursor(cursor.epoch + 1)
                yield after, plan[batch]
            cursor = Cursor(cursor.epoch + 1)
