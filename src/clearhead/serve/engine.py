"""Requests in, batches out to what computes, answers back: one bounded waiting room for everything that is served.

A request is a ticket with rows. Threads take rows of equal tasks out of the waiting room, the oldest request first, as
many as a batch may hold; a request with rows left goes to the end of the line, so that a large one delays nobody for
long. Whoever leaves takes his rows along: those that wait are forgotten, those under way are told to their batch, which
drops them at its next step.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from clearhead.errors import ClearheadError
from clearhead.serve.backends import Backend, Lane, Watch
from clearhead.serve.refusals import overloaded, stopping, too_slow

Given = TypeVar("Given")
Answer = TypeVar("Answer")
Given_contra = TypeVar("Given_contra", contravariant=True)
Answer_co = TypeVar("Answer_co", covariant=True)

MEMORY = 0.8
"""How much of the measured speed is that of earlier batches."""

log = logging.getLogger("clearhead.serve")


class Task(Protocol[Given_contra, Answer_co]):
    """What is to be done with rows; equal tasks share batches."""

    @property
    def backend(self) -> Backend:
        """What does it."""

    def compute(self, rows: Sequence[Given_contra], watch: Watch) -> Sequence[Answer_co]:
        """Do it."""


class Row(NamedTuple, Generic[Given]):
    """One text of a request."""

    given: Given
    tokens: int
    group: Hashable = 0
    """Only rows of one group go into one batch."""


class Ticket(Generic[Given, Answer]):
    """A request in the engine; made, asked and left in the event loop."""

    def __init__(
        self, engine: Engine, task: Task[Given, Answer], rows: Sequence[Row[Given]], listens: bool = False
    ) -> None:
        self.task = task
        self.rows = rows
        self.is_gone = False
        # Those of a length together, so that a batch is not mostly padding.
        order = sorted(range(len(rows)), key=lambda place: (repr(rows[place].group), rows[place].tokens, place))
        self.waiting = deque(order)
        """The places of rows that are not under way yet."""
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._found: dict[int, Answer] = {}
        self._done: asyncio.Future[list[Answer]] = self._loop.create_future()
        self._news: asyncio.Queue[tuple[int, Any] | None] | None = asyncio.Queue() if listens else None

    async def answers(self) -> list[Answer]:
        """The answers, in the order of the rows."""
        return await asyncio.shield(self._done)

    async def news(self) -> AsyncIterator[tuple[int, Any]]:
        """What rows have come to, as it comes; ends when all are done."""
        assert self._news is not None, "only a ticket that listens hears news"
        while (one := await self._news.get()) is not None:
            yield one
        await self.answers()

    def leave(self) -> None:
        """Wait no more; the work that is left is not done."""
        if not self._done.done():
            self._done.cancel()
            self._engine.cancel(self)

    # What the engine's threads call.

    def answer(self, place: int, answer: Answer) -> None:
        """Hand over the answer of one row."""
        self._say(self._take, place, answer)

    def fail(self, error: Exception) -> None:
        """Hand over why there will be no answer."""
        self._say(self._give_up, error)

    def tell(self, place: int, news: Any) -> None:
        """Hand over what a row has come to so far."""
        if self._news is not None and not self.is_gone:
            self._say(self._news.put_nowait, (place, news))

    def _say(self, hear: Callable[..., None], *what: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(hear, *what)
        except RuntimeError:
            log.debug("the event loop is closed, and nobody waits for an answer any more")

    def _take(self, place: int, answer: Answer) -> None:
        self._found[place] = answer
        if len(self._found) == len(self.rows) and not self._done.done():
            self._done.set_result([self._found[place] for place in range(len(self.rows))])
            self._end()

    def _give_up(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)
            # Nobody may be waiting yet, or any more; that is no reason to complain.
            self._done.exception()
            self._engine.forget([self])
            self._end()

    def _end(self) -> None:
        if self._news is not None:
            self._news.put_nowait(None)


class _Batch(Generic[Given, Answer]):
    """Rows under way together; what their task is given as its watch."""

    def __init__(self, task: Task[Given, Answer], heard: int = 0) -> None:
        self.task = task
        self.rows: list[tuple[Ticket[Given, Answer], int]] = []
        self.longest = 0
        self.group: Hashable = None
        self.told: Counter[int] = Counter()
        """How many news there were of each row."""
        self._heard = heard

    @property
    def tokens(self) -> int:
        """How much it is, padding included."""
        return len(self.rows) * self.longest

    def has_room_for(self, row: Row[Given]) -> bool:
        """Whether one more row fits."""
        backend = self.task.backend
        longest = max(self.longest, row.tokens)
        fits = len(self.rows) < backend.most_rows and (len(self.rows) + 1) * longest <= backend.most_tokens
        return not self.rows or (fits and row.group == self.group)

    def add(self, ticket: Ticket[Given, Answer], place: int) -> None:
        """Take one row more."""
        self.rows.append((ticket, place))
        self.longest = max(self.longest, ticket.rows[place].tokens)
        self.group = ticket.rows[place].group

    def unwanted(self) -> list[int]:
        """The rows that nobody waits for any more."""
        return [number for number, (ticket, _) in enumerate(self.rows) if ticket.is_gone]

    def tell(self, place: int, news: Any) -> None:
        """Pass on what a row has come to so far, unless it was heard before, in an attempt that failed."""
        ticket, row = self.rows[place]
        self.told[place] += 1
        if self.told[place] > self._heard:
            ticket.tell(row, news)


class Meter(Protocol):
    """Who counts what the engine does."""

    def batch(self, task: str, rows: int, tokens: int, seconds: float) -> None:
        """A batch is done."""

    def cancelled(self) -> None:
        """Somebody left before he had his answer."""


class Engine:
    """The waiting room, and the threads that empty it."""

    def __init__(self, lanes: Sequence[Lane], *, queue: int, seconds: float, meter: Meter | None = None) -> None:
        self.queue = queue
        self.seconds = seconds
        self._meter = meter
        self._waiting: deque[Ticket[Any, Any]] = deque()
        self._under_way: list[_Batch[Any, Any]] = []
        self._backlog = 0
        self._speed: dict[Lane, float] = {}
        self._is_open = True
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._work, args=(lane,), name=f"{lane.name}-{number}", daemon=True)
            for lane in dict.fromkeys(lanes)
            for number in range(lane.width)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    @property
    def computing(self) -> int:
        """How many rows are under way."""
        return sum(len(batch.rows) for batch in self._under_way)

    def check(self) -> None:
        """Refuse at once if there is no room, before anything is done for a request."""
        if not self._is_open:
            raise stopping()
        if len(self._waiting) >= self.queue:
            raise overloaded(self._wait(0, None))

    def enter(
        self, task: Task[Given, Answer], rows: Sequence[Row[Given]], *, listens: bool = False
    ) -> Ticket[Given, Answer]:
        """A place in the waiting room, or a refusal; `listens` asks for news."""
        with self._changed:
            self.check()
            tokens = sum(row.tokens for row in rows)
            wait = self._wait(tokens, task.backend.lane)
            if wait > self.seconds and self._backlog:
                raise overloaded(wait - self.seconds)
            ticket = Ticket(self, task, rows, listens)
            self._waiting.append(ticket)
            self._backlog += tokens
            self._changed.notify_all()
        return ticket

    async def answers(self, task: Task[Given, Answer], rows: Sequence[Row[Given]], deadline: float) -> list[Answer]:
        """The answers to rows, in their order; whoever stops waiting for them leaves the engine."""
        if not rows:
            return []
        ticket = self.enter(task, rows)
        try:
            async with asyncio.timeout_at(deadline):
                return await ticket.answers()
        except TimeoutError:
            raise too_slow(self.seconds) from None
        finally:
            ticket.leave()

    def cancel(self, ticket: Ticket[Any, Any]) -> None:
        """Give up what is left of a request whose maker has left."""
        self.forget([ticket])
        if self._meter is not None:
            self._meter.cancelled()

    def forget(self, tickets: Iterable[Ticket[Any, Any]]) -> None:
        """Give up what is left of some requests."""
        with self._changed:
            for ticket in tickets:
                ticket.is_gone = True
                self._backlog -= sum(ticket.rows[place].tokens for place in ticket.waiting)
                ticket.waiting.clear()
                if ticket in self._waiting:
                    self._waiting.remove(ticket)

    def close(self) -> None:
        """Take nobody in any more, and tell all who are inside that there will be no answer."""
        with self._changed:
            self._is_open = False
            inside = {*self._waiting, *(ticket for batch in self._under_way for ticket, _ in batch.rows)}
            self._changed.notify_all()
        # First they are told: what computes ends early once a request is forgotten, and half an answer is none.
        for ticket in inside:
            ticket.fail(stopping())
        self.forget(inside)

    def join(self, seconds: float) -> None:
        """Wait until the threads are done, after `close`."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _wait(self, tokens: int, lane: Lane | None) -> float:
        """How long whoever comes now will have to wait, by the speed so far; 0 while it is not known."""
        speeds = [speed * at.width for at, speed in self._speed.items() if lane is None or at is lane]
        return (self._backlog + tokens) / min(speeds) if speeds else 0.0

    def _work(self, lane: Lane) -> None:
        while (batch := self._next(lane)) is not None:
            started = time.perf_counter()
            self._compute(batch)
            seconds = time.perf_counter() - started
            with self._changed:
                self._under_way.remove(batch)
                speed = batch.tokens / max(seconds, 1e-6)
                self._speed[lane] = MEMORY * self._speed.get(lane, speed) + (1 - MEMORY) * speed
            if self._meter is not None:
                self._meter.batch(type(batch.task).__name__, len(batch.rows), batch.tokens, seconds)

    def _next(self, lane: Lane) -> _Batch[Any, Any] | None:
        """The next batch, as soon as there is one; None when the engine is closed and the room is empty."""
        with self._changed:
            while True:
                first = next((ticket for ticket in self._waiting if ticket.task.backend.lane is lane), None)
                if first is not None:
                    batch = self._fill(first)
                    self._under_way.append(batch)
                    return batch
                if not self._is_open:
                    return None
                self._changed.wait()

    def _fill(self, first: Ticket[Any, Any]) -> _Batch[Any, Any]:
        batch: _Batch[Any, Any] = _Batch(first.task)
        for ticket in [one for one in self._waiting if one.task == first.task]:
            while ticket.waiting and batch.has_room_for(ticket.rows[ticket.waiting[0]]):
                place = ticket.waiting.popleft()
                batch.add(ticket, place)
                self._backlog -= ticket.rows[place].tokens
            if not ticket.waiting:
                self._waiting.remove(ticket)
        if first.waiting:
            self._waiting.remove(first)
            self._waiting.append(first)
        return batch

    def _compute(self, batch: _Batch[Any, Any]) -> None:
        try:
            answers = batch.task.compute([ticket.rows[place].given for ticket, place in batch.rows], batch)
            found = list(zip(batch.rows, answers, strict=True))
        except Exception as error:
            if len(batch.rows) > 1:
                self._compute_alone(batch)
                return
            if not isinstance(error, ClearheadError):
                log.exception("what computes has failed")
            batch.rows[0][0].fail(error)
            return
        for (ticket, place), answer in found:
            ticket.answer(place, answer)

    def _compute_alone(self, batch: _Batch[Any, Any]) -> None:
        """Find out whose fault it was: nobody fails because of what was in the batch beside him."""
        for number, (ticket, place) in enumerate(batch.rows):
            if not ticket.is_gone:
                alone: _Batch[Any, Any] = _Batch(batch.task, heard=batch.told[number])
                alone.add(ticket, place)
                self._compute(alone)
