"""The engine: bounded, fair, batched by tokens; whoever leaves is forgotten, and nobody suffers from his neighbours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.serve.doubles import Backwards, Counting

from clearhead.errors import DataError
from clearhead.serve.backends import Piece, Prompt, TranslateOptions, WriteOptions
from clearhead.serve.engine import Engine, Row
from clearhead.serve.refusals import Refusal
from clearhead.serve.tasks import Translating, Writing

Make = Callable[..., Engine]


@pytest.fixture
def make() -> Iterator[Make]:
    """An engine for backends; closed at the end."""
    made: list[Engine] = []

    def engine(*backends: Any, queue: int = 8, seconds: float = 5.0) -> Engine:
        made.append(Engine([backend.lane for backend in backends], queue=queue, seconds=seconds))
        return made[-1]

    yield engine
    for one in made:
        one.close()
        one.join(2.0)


def rows(*texts: str) -> list[Row[str]]:
    return [Row(text, len(text)) for text in texts]


def task(backend: Backwards, results: int = 1) -> Translating:
    return Translating(backend, TranslateOptions(results))


async def ask(engine: Engine, what: Any, given: list[Row[Any]], seconds: float = 30.0) -> list[Any]:
    return await engine.answers(what, given, asyncio.get_running_loop().time() + seconds)


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something that is about to happen."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.002)


def run(test: Awaitable[None]) -> None:
    asyncio.run(test)  # type: ignore[arg-type]


def test_answers_come_in_the_order_of_the_rows(make: Make) -> None:
    backend = Backwards(most_rows=3)
    engine = make(backend)

    async def check() -> None:
        found = await ask(engine, task(backend), rows("lang und breit", "ab", "", "cde", "x"))
        assert [best[0].text for best in found] == ["tierb dnu gnal", "ba", "", "edc", "x"]
        assert await ask(engine, task(backend), []) == []

    run(check())


def test_requests_that_wait_together_are_computed_together_within_the_budget(make: Make) -> None:
    backend = Backwards(most_rows=4, most_tokens=12)
    engine = make(backend)
    backend.gate.clear()

    async def check() -> None:
        first = asyncio.create_task(ask(engine, task(backend), rows("a")))
        await until(lambda: len(backend.batches) == 1)
        others = [
            asyncio.create_task(ask(engine, task(backend), rows(text))) for text in ("bb", "cc", "dd", "eeeeee", "f")
        ]
        other_options = asyncio.create_task(ask(engine, task(backend, results=2), rows("g")))
        await until(lambda: engine.waiting == 6)
        backend.gate.set()
        await asyncio.gather(first, *others, other_options)
        assert backend.batches == [["a"], ["bb", "cc", "dd", "f"], ["eeeeee"], ["g"]]

    run(check())


def test_a_large_request_does_not_hold_up_a_small_one(make: Make) -> None:
    backend = Backwards(most_rows=2)
    engine = make(backend)
    backend.gate.clear()

    async def check() -> None:
        large = asyncio.create_task(ask(engine, task(backend), rows(*"abcdefgh")))
        await until(lambda: len(backend.batches) == 1)
        small = asyncio.create_task(ask(engine, task(backend), rows("small")))
        await until(lambda: engine.waiting == 2)
        backend.gate.set()
        await asyncio.gather(small, large)
        # It has waited for the batch under way, and for one that the large request was in line for before it came.
        assert any("small" in batch for batch in backend.batches[:3]) and len(backend.batches) == 5

    run(check())


def test_a_full_room_refuses_at_once_and_says_when_to_come_again(make: Make) -> None:
    backend = Backwards()
    engine = make(backend, queue=2)
    backend.gate.clear()

    async def check() -> None:
        first = asyncio.create_task(ask(engine, task(backend), rows("a")))
        await until(lambda: len(backend.batches) == 1)
        waiting = [asyncio.create_task(ask(engine, task(backend), rows("b"))) for _ in range(2)]
        await until(lambda: engine.waiting == 2)
        with pytest.raises(Refusal) as refused:
            await ask(engine, task(backend), rows("c"))
        assert refused.value.status == 503 and int(refused.value.headers["Retry-After"]) >= 1
        backend.gate.set()
        await asyncio.gather(first, *waiting)
        assert engine.waiting == 0

    run(check())


def test_what_would_take_too_long_is_refused_once_the_speed_is_known(make: Make) -> None:
    backend = Backwards(most_tokens=10, step=0.05)
    engine = make(backend, seconds=1.0, queue=100)

    async def check() -> None:
        await ask(engine, task(backend), rows("0123456789"))
        tasks = [asyncio.create_task(ask(engine, task(backend), rows(*["0123456789"] * 10), 2.0)) for _ in range(4)]
        done = await asyncio.gather(*tasks, return_exceptions=True)
        refused = [one for one in done if isinstance(one, Refusal)]
        assert 0 < len(refused) < 4 and all(one.status == 503 for one in refused)

    run(check())


def test_a_request_that_takes_too_long_is_given_up(make: Make) -> None:
    backend = Backwards()
    engine = make(backend)
    backend.gate.clear()

    async def check() -> None:
        with pytest.raises(Refusal, match="took longer"):
            await ask(engine, task(backend), rows("a"), seconds=0.05)
        await until(lambda: engine.computing == 0)
        backend.gate.set()
        assert (await ask(engine, task(backend), rows("ab")))[0][0].text == "ba"

    run(check())


def test_whoever_leaves_takes_his_rows_along(make: Make) -> None:
    backend = Backwards()
    engine = make(backend)
    backend.gate.clear()

    async def check() -> None:
        first = asyncio.create_task(ask(engine, task(backend), rows("a")))
        await until(lambda: len(backend.batches) == 1)
        second = asyncio.create_task(ask(engine, task(backend), rows("b")))
        await until(lambda: engine.waiting == 1)
        for one in (second, first):
            one.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        assert engine.waiting == 0
        # The batch that was under way ends at its next step, though its gate is closed.
        await until(lambda: engine.computing == 0)
        assert backend.batches == [["a"]]

    run(check())


def test_rows_that_are_gone_end_within_one_step_while_others_go_on(make: Make) -> None:
    writer = Counting(step=0.005)
    engine = make(writer)
    options = WriteOptions(temperature=0.0)

    async def check() -> None:
        given = [Row(Prompt((97, 98), 300, 0), 1)]
        tickets = [engine.enter(Writing(writer, options), given, listens=True) for _ in range(2)]
        heard = []
        async for _, piece in tickets[0].news():
            heard.append(piece.text)
            if len(heard) == 5:
                break
        tickets[0].leave()
        (whole,) = await tickets[1].answers()
        assert len(whole.text) == 300

    run(check())
    ended, went_on = writer.lengths
    assert 5 <= ended < 150 < went_on == 300


def test_news_come_in_order_and_make_up_the_whole(make: Make) -> None:
    writer = Counting()
    engine = make(writer)

    async def check() -> None:
        given = [Row(Prompt((97, 98, 99), 5 + number, number), 1) for number in range(3)]
        ticket = engine.enter(Writing(writer, WriteOptions()), given, listens=True)
        heard: dict[int, str] = {}
        async for place, piece in ticket.news():
            assert isinstance(piece, Piece)
            heard[place] = heard.get(place, "") + piece.text
        assert [heard[place] for place in range(3)] == [one.text for one in await ticket.answers()]

    run(check())


def test_rows_of_different_groups_do_not_share_a_batch(make: Make) -> None:
    writer = Counting()
    engine = make(writer)
    sizes = []
    plain = writer.write_batch
    writer.write_batch = lambda prompts, *rest: sizes.append(len(prompts)) or plain(prompts, *rest)  # type: ignore[assignment,func-returns-value]

    async def check() -> None:
        given = [Row(Prompt((97,) * length, 2, 0), 1, group=length) for length in (1, 2, 1, 2, 2)]
        await ask(engine, Writing(writer, WriteOptions()), given)
        assert sorted(sizes) == [2, 3]

    run(check())


@pytest.mark.parametrize(("word", "error"), [("poison", DataError), ("bomb", RuntimeError)])
def test_nobody_fails_because_of_what_was_beside_him(
    make: Make, word: str, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    backend = Backwards()
    engine = make(backend)
    backend.gate.clear()

    async def check() -> None:
        first = asyncio.create_task(ask(engine, task(backend), rows("a")))
        await until(lambda: len(backend.batches) == 1)
        good, bad, fine = (asyncio.create_task(ask(engine, task(backend), rows(text))) for text in ("ok", word, "fine"))
        await until(lambda: engine.waiting == 3)
        backend.gate.set()
        await first
        assert (await good)[0][0].text == "ko" and (await fine)[0][0].text == "enif"
        with pytest.raises(error):
            await bad
        assert (await ask(engine, task(backend), rows("ab")))[0][0].text == "ba"

    run(check())


def test_an_attempt_that_failed_is_not_heard_twice(make: Make) -> None:
    writer = Counting()
    engine = make(writer)
    plain = writer.write_batch

    def trip(prompts: Any, options: Any, watch: Any) -> Any:
        if len(prompts) > 1:
            for place in range(len(prompts)):
                watch.tell(place, Piece("a", ()))
            raise RuntimeError("together they fail")
        return plain(prompts, options, watch)

    writer.write_batch = trip  # type: ignore[method-assign]

    async def check() -> None:
        given = [Row(Prompt((97, 98), 4, 0), 1) for _ in range(2)]
        ticket = engine.enter(Writing(writer, WriteOptions(temperature=0.0)), given, listens=True)
        heard = {0: "", 1: ""}
        async for place, piece in ticket.news():
            heard[place] += piece.text
        assert heard == {0: "abab", 1: "abab"}

    run(check())


def test_a_closed_engine_answers_all_and_takes_nobody_in(make: Make) -> None:
    backend = Backwards()
    engine = make(backend)
    backend.gate.clear()

    async def check() -> None:
        tasks = [asyncio.create_task(ask(engine, task(backend), rows(text))) for text in ("a", "b")]
        await until(lambda: len(backend.batches) == 1)
        engine.close()
        for one in tasks:
            with pytest.raises(Refusal, match="stopping"):
                await one
        with pytest.raises(Refusal, match="stopping"):
            await ask(engine, task(backend), rows("c"))

    run(check())
    started = time.monotonic()
    engine.join(60.0)
    assert time.monotonic() - started < 30
