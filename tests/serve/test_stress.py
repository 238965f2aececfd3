"""Too many clients, clients that hang up, and a server that is told to stop: short forms of benchmarks/server.py."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.serve.doubles import Backwards, Counting, backwards, counting
from tests.serve.here import Here
from tests.serve.processes import serving

from clearhead.bench.load import Client, Request, drop_streams, flood
from clearhead.serve import running

TRANSLATE = Request("/translate", {"q": "Hallo", "source": "de", "target": "en"})
STREAM = Request("/v1/completions", {"model": "counting", "prompt": "abc", "max_tokens": 350, "stream": True})


async def ask(address: str, request: Request) -> tuple[int, dict[str, str], bytes]:
    async with Client(address) as client:
        return await client.ask(request)


@contextmanager
def patient(condition: Callable[[], bool], seconds: float) -> Iterator[None]:
    """What must have come about within some seconds of the end of a block."""
    yield
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_under_overload_every_request_gets_an_answer_and_none_waits_too_long() -> None:
    translator = Backwards(most_rows=2, step=0.02)
    with Here(backwards(translator=translator), queue=8, seconds=20.0) as server:
        alone = asyncio.run(flood(server.address, [TRANSLATE], clients=4, seconds=0.5))
        assert alone.statuses.keys() == {200} and alone.lost == []
        found = asyncio.run(flood(server.address, [TRANSLATE], clients=48, seconds=2.0, rate=8 * alone.rate))
    assert found.lost == [] and found.statuses.keys() == {200, 503} and found.without_advice == 0
    # The accepted wait behind at most eight others, and nobody for longer than is promised.
    assert max(found.times) < 20.0


def test_dropped_streams_leave_nothing_behind() -> None:
    writer = Counting(step=0.05)
    with Here(counting(writer=writer), backwards()) as server:
        # All streams would take two minutes, but each ends within a step of its client's leaving.
        with patient(lambda: writer.under_way == 0, 20.0):
            asyncio.run(drop_streams(server.address, STREAM, 50))
        engine = server.application.server.engine
        # The answer may be here a moment before its place is free.
        with patient(lambda: (engine.waiting, engine.computing) == (0, 0), 20.0):
            short = Request("/v1/completions", {"model": "counting", "prompt": "abc", "max_tokens": 3})
            status, _, body = asyncio.run(ask(server.address, short))
            assert status == 200 and b'"length"' in body


def test_a_client_that_leaves_before_the_answer_frees_its_place() -> None:
    translator = Backwards()
    translator.gate.clear()
    with Here(backwards(translator=translator)) as server:
        engine = server.application.server.engine

        async def leave() -> None:
            clients = [Client(server.address) for _ in range(5)]
            waiting = [asyncio.create_task(client.ask(TRANSLATE)) for client in clients]
            while engine.waiting + engine.computing < len(clients):
                await asyncio.sleep(0.005)
            for client in clients:
                client.abort()
            await asyncio.gather(*waiting, return_exceptions=True)

        with patient(lambda: (engine.waiting, engine.computing) == (0, 0), 20.0):
            asyncio.run(leave())
        translator.gate.set()
        assert asyncio.run(ask(server.address, TRANSLATE))[0] == 200


def test_a_server_told_to_stop_finishes_what_is_under_way() -> None:
    translator = Backwards(step=0.3)
    with Here(backwards(translator=translator)) as server:

        async def check() -> None:
            tasks = [asyncio.create_task(ask(server.address, TRANSLATE)) for _ in range(6)]
            await asyncio.sleep(0.1)
            server.drain()
            await asyncio.sleep(0.05)
            status, headers, _ = await ask(server.address, Request("/readyz"))
            assert status == 503 and headers["connection"] == "close"
            for status, _, _ in await asyncio.gather(*tasks):
                assert status == 200

        asyncio.run(check())
        with patient(lambda: not server.is_running, 20.0):
            pass


def test_what_does_not_end_in_time_is_told_so_when_the_server_stops() -> None:
    translator = Backwards()
    translator.gate.clear()
    with Here(backwards(translator=translator), drain=0.7) as server:

        async def check() -> None:
            task = asyncio.create_task(ask(server.address, TRANSLATE))
            await asyncio.sleep(0.1)
            server.drain()
            status, headers, body = await task
            assert status == 503 and b"stopping" in body and "retry-after" in headers

        asyncio.run(check())
        with patient(lambda: not server.is_running, 20.0):
            pass


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_real_server_stops_under_load_and_loses_nothing(trained: Path, number: signal.Signals) -> None:
    words = Request("/translate", {"q": ["dreiundzwanzig", "hundertelf", "acht"], "source": "de", "target": "en"})
    with serving(trained, flags=["--rate", "0"]) as server:
        told = threading.Event()

        def tell() -> None:
            time.sleep(0.8)
            told.set()
            server.process.send_signal(number)

        threading.Thread(target=tell).start()
        found = asyncio.run(flood(server.address, [words], clients=16, seconds=20, until=told.is_set))
        assert server.process.wait(60) == 0
    assert found.lost == [] and found.statuses[200] > 16 and found.statuses.keys() <= {200, 503}
    assert any("stopped" in line for line in server.said)


def test_a_short_soak_leaves_no_error_and_no_memory_behind(trained: Path) -> None:
    words = Request("/translate", {"q": ["dreiundzwanzig", "hundertelf"], "source": "auto", "target": "en"})

    async def ask_again_and_again(times: int) -> list[int]:
        async def one_client() -> list[int]:
            async with Client(server.address) as client:
                return [(await client.ask(words))[0] for _ in range(times)]

        # By number and not by time, so that there are as many on a busy machine.
        return [status for found in await asyncio.gather(*(one_client() for _ in range(8))) for status in found]

    with serving(trained, flags=["--rate", "0"]) as server:
        warm = asyncio.run(ask_again_and_again(10))
        before = memory(server.process.pid)
        statuses = asyncio.run(ask_again_and_again(50))
        after = memory(server.process.pid)
        assert server.stop() == 0
    assert {*warm, *statuses} == {200} and len(statuses) == 400
    assert after - before < 30, f"{before:.0f} MB before, {after:.0f} MB after"


def memory(process: int) -> float:
    """The megabytes that a process holds."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_connections_that_do_not_come_to_the_point_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "PATIENCE", 0.3)
    with Here(backwards(translator=Backwards(step=0.8))) as server:
        port = int(server.address.rpartition(":")[2])

        async def check() -> None:
            silent, slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            slow[1].write(b"POST /translate HTTP/1.1\r\nHost: loc")
            # Whoever has asked, and waits for the answer, is not hurried.
            busy = asyncio.create_task(ask(server.address, TRANSLATE))
            for reader, writer in (silent, slow):
                assert await asyncio.wait_for(reader.read(), 20) == b""
                writer.close()
            assert (await busy)[0] == 200

        asyncio.run(check())


def reluctant(server: Here, sent: bytes) -> socket.socket:
    """A client that has asked for something, and for which neither kernel keeps much until it reads."""
    server._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(20)
    client.connect(("127.0.0.1", int(server.address.rpartition(":")[2])))
    client.sendall(sent)
    return client


LONG_STREAM = Request(
    "/v1/completions", {"model": "counting", "prompt": "abc", "max_tokens": 390, "n": 3, "stream": True}
)


@pytest.mark.parametrize(
    "sent",
    [
        Request("/docs").raw("localhost") * 300,
        Request("/docs").raw("localhost"),
        b"GET /docs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        LONG_STREAM.raw("localhost"),
    ],
    ids=["many", "one", "last", "stream"],
)
def test_a_client_that_asks_and_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(running, "PATIENCE", 0.3)
    with Here(backwards(), counting()) as server:
        state = server._stoppable.server_state
        with reluctant(server, sent):
            with patient(lambda: bool(state.connections), 20.0):
                pass
            with patient(lambda: not state.connections and not state.tasks, 20.0):
                pass


def test_a_client_that_reads_slowly_gets_all_of_a_long_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "PATIENCE", 1.0)
    with Here(counting()) as server, reluctant(server, LONG_STREAM.raw("localhost")) as client:
        started, got = time.monotonic(), b""
        while not got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
            piece = client.recv(2048)
            assert piece, "it was cut off"
            got = got[-100:] + piece
            time.sleep(0.05)
        assert time.monotonic() - started > 2 * running.PATIENCE


def test_a_connection_too_many_is_told_to_come_again_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MOST_CONNECTIONS", 2)
    with Here(backwards()) as server:

        async def check() -> None:
            async with Client(server.address) as first, Client(server.address) as second:
                assert [(await client.ask(TRANSLATE))[0] for client in (first, second)] == [200, 200]
                status, headers, body = await ask(server.address, TRANSLATE)
                assert status == 503 and b"busy" in body
                assert headers["retry-after"] == "1" and headers["connection"] == "close"
                status, headers, _ = await ask(server.address, Request("/livez"))
                assert status == 200 and headers["connection"] == "close", "whoever watches the server is heard"
                assert (await first.ask(TRANSLATE))[0] == 200

        asyncio.run(check())
        # When others have hung up, there is room again.
        with patient(lambda: asyncio.run(ask(server.address, TRANSLATE))[0] == 200, 20.0):
            pass


def test_what_is_no_http_is_answered_and_harms_nobody() -> None:
    with Here(backwards()) as server:
        port = int(server.address.rpartition(":")[2])
        post = b"POST /translate HTTP/1.1\r\nHost: localhost\r\n"
        rubbish = [
            b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
            post + b"Content-Length: -1\r\n\r\n",
            post + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        ]  # fmt: skip

        async def send(content: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(content)
            try:
                return await asyncio.wait_for(reader.read(12), 20)
            except ConnectionError:
                return b""
            finally:
                writer.close()

        for content in rubbish:
            answer = asyncio.run(send(content))
            assert answer == b"" or answer[9:10] in (b"2", b"4"), (content[:60], answer)
        assert asyncio.run(ask(server.address, TRANSLATE))[0] == 200
