"""Examples in, batches out, in an order that depends only on the seed and the epoch and can be resumed.

An epoch is planned as a whole: shuffle, cut into pools, sort each pool by length, cut it into batches, shuffle the
batches. The plan is two flat arrays and is the same on every machine and for any number of processes; each step of it
is then dealt out to them, so a run may go on with more or fewer than it began with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, overload

import numpy as np
from numpy.random import PCG64, SeedSequence
from numpy.typing import NDArray
from pydantic import Field

from clearhead.config import Record
from clearhead.data.dealing import deal, deal_whole
from clearhead.data.examples import Batch, Draw, Examples, Integers
from clearhead.errors import DataError


class BatchConfig(Record):
    """How many examples (sentence pairs, texts, pictures) make a batch."""

    max_tokens: int = Field(default=4096, ge=1)
    """The most a batch may hold: examples x the longest among them, padding and control tokens included. An example
    that is longer on its own is a batch on its own."""

    batch_size: int | None = Field(default=None, ge=1)
    """This many examples in every batch, whatever their length, in place of max_tokens."""

    pool: int = Field(default=100, ge=1)
    """How many batches' worth of shuffled examples are sorted by length together: more means less padding, fewer means
    more random batches."""


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


def epoch_plan(examples: Examples, config: BatchConfig, seed: int, epoch: int) -> Plan:
    """Every example once, in batches of similar length, in an order that follows from seed and epoch alone."""
    bits = PCG64(SeedSequence([seed, epoch]))
    order = _shuffled(len(examples), bits)
    lengths, keys = examples.lengths, examples.sort_keys
    # Where there is nothing to sort by, pools would only cut batches short.
    size = _pool_size(lengths, config) if keys else max(1, len(order))
    cuts = []
    for start in range(0, len(order), size):
        pool = order[start : start + size]
        if keys:
            pool[:] = pool[np.lexsort([key[pool] for key in keys])]
        cuts.append(start + _cut(lengths[pool], config))
    plan = _plan(order, cuts)
    shuffled = _shuffled(len(plan), bits)
    return Plan(order, plan.starts[shuffled], plan.ends[shuffled])


def fixed_plan(examples: Examples, config: BatchConfig) -> Plan:
    """Every example once, shortest first, with no chance involved."""
    keys = examples.sort_keys
    order = np.lexsort(keys) if keys else np.arange(len(examples))
    return _plan(order, [_cut(examples.lengths[order], config)])


class Part(NamedTuple):
    """A batch, or what one process does of it."""

    batch: Batch
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
    """A few of the examples of the whole step, by number, to be named when something goes wrong."""


def fixed_parts(examples: Examples, config: BatchConfig, rank: int = 0, size: int = 1) -> Iterator[Part]:
    """This process's share of the batches for validation: always the same, with no chance involved."""
    plan = fixed_plan(examples, config)
    return (_part(examples, rows, plan[0], None) for rows in deal_whole(plan, rank, size))


def _part(examples: Examples, rows: Integers, batch: Integers, draw: Draw | None) -> Part:
    """The rows as a batch; if there are none, the first row of the batch they were to come from, for nothing."""
    return Part(examples.batch(rows if len(rows) else batch[:1], draw), bool(len(rows)))


def _shuffled(count: int, bits: PCG64) -> NDArray[np.int64]:
    # By sorting raw bits: numpy promises these for all versions to come, and `Generator.permutation` it does not.
    return np.argsort(bits.random_raw(count), kind="stable")


def _pool_size(lengths: Integers, config: BatchConfig) -> int:
    if config.batch_size is not None:
        return config.pool * config.batch_size
    tokens = int(lengths.sum(dtype=np.int64))
    return max(1, config.pool * config.max_tokens * len(lengths) // max(1, tokens))


def _cut(lengths: Integers, config: BatchConfig) -> NDArray[np.int64]:
    """Where batches begin among examples sorted by length, each batch as large as it may be."""
    if config.batch_size is not None:
        return np.arange(0, len(lengths), config.batch_size)
    starts: list[int] = []
    start = 0
    while start < len(lengths):
        starts.append(start)
        most = config.max_tokens // int(lengths[start])
        cost = lengths[start : start + most] * np.arange(1, most + 1)[: len(lengths) - start]
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

    @property
    def epochs_begun(self) -> int:
        """How many epochs something was taken from; where one has ended, the next has not begun."""
        return self.epoch + (self.batch > 0)


START = Cursor()


class _Place(NamedTuple):
    """A batch as positions in the corpus."""

    epoch: int
    rows: Integers
    after: Cursor
    """What continues after it."""


class Batches:
    """Training batches without end, epoch after epoch, from any cursor."""

    def __init__(self, examples: Examples, config: BatchConfig, seed: int) -> None:
        if len(examples) == 0:
            raise DataError("there are no examples to train on: all were dropped, or the data are empty")
        self.examples = examples
        self.config = config
        self.seed = seed
        self._latest: tuple[int, Plan] | None = None

    def epoch(self, epoch: int) -> Plan:
        """The batches of one epoch, as positions in the corpus; the latest plan is remembered."""
        if self._latest is None or self._latest[0] != epoch:
            self._latest = epoch, epoch_plan(self.examples, self.config, self.seed, epoch)
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
        examples, places = self.examples, self._places(cursor)
        work, answers = examples.work, examples.answers
        while True:
            pulled = list(islice(places, accumulate))
            batches = [place.rows for place in pulled]
            # Made last: a process makes only what is its own.
            mine = deal(batches, work, rank, size)
            yield Share(
                cursor=pulled[-1].after,
                tokens=sum(int(answers[rows].sum()) for rows in batches),
                parts=tuple(
                    _part(examples, rows, batches[0], Draw(self.seed, pulled[number].epoch)) for number, rows in mine
                ),
                examples=tuple(int(row) for rows in batches for row in rows[:3]),
            )

    def _places(self, cursor: Cursor) -> Iterator[_Place]:
        while True:
            plan = self.epoch(cursor.epoch)
            for batch in range(cursor.batch, len(plan)):
                after = Cursor(cursor.epoch, batch + 1) if batch + 1 < len(plan) else Cursor(cursor.epoch + 1)
                yield _Place(cursor.epoch, plan[batch], after)
            cursor = Cursor(cursor.epoch + 1)
