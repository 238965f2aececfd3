"""The address of a server in, what becomes of many requests to it out: statuses, times, and connections that broke."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 120.0
"""Seconds after which an answer is not waited for any more."""


@dataclass(frozen=True)
class Request:
    """What is sent."""

    path: str
    body: Mapping[str, Any] | None = None

    def raw(self, host: str) -> bytes:
        """As it goes over the wire."""
        if self.body is None:
            return f"GET {self.path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        content = json.dumps(self.body).encode()
        head = f"POST {self.path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


@dataclass
class Outcome:
    """What became of all requests."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    """Of the requests that were answered with 200."""
    refused_times: list[float] = field(default_factory=list)
    """Of the others that were answered."""
    without_advice: int = 0
    """Refusals for want of room that did not say when to try again."""
    lost: list[str] = field(default_factory=list)
    """How requests ended that were sent and never answered."""

    @property
    def rate(self) -> float:
        """Requests a second that were answered with 200."""
        return self.statuses[200] / self.seconds if self.seconds else 0.0

    def count(self, status: int, seconds: float, headers: Mapping[str, str]) -> None:
        """Note an answer."""
        self.statuses[status] += 1
        (self.times if status == 200 else self.refused_times).append(seconds)
        if status in (429, 503) and "retry-after" not in headers:
            self.without_advice += 1


class Client:
    """One connection after another to a server, each used for as long as the server keeps it open."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._pipes: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.abort()

    async def ask(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        """The status, headers and body of an answer; ConnectionError if there is none."""
        async with asyncio.timeout(PATIENCE):
            reader, writer = await self._connected()
            writer.write(request.raw(f"{self._host}:{self._port}"))
            await writer.drain()
            status, headers = await _head(reader)
            body = await reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection", "").lower() == "close":
            self.close()
        return status, headers, body

    async def begin(self, request: Request) -> bytes:
        """Send something whose answer is a stream, and read its first line that says something."""
        reader, writer = await self._connected()
        writer.write(request.raw(f"{self._host}:{self._port}"))
        status, _ = await _head(reader)
        if status != 200:
            raise ConnectionError(f"there is no stream: {status}")
        line = b""
        while b"data:" not in line:
            line = await reader.readuntil(b"\n")
        return line

    def close(self) -> None:
        """Hang up."""
        if self._pipes is not None:
            self._pipes[1].close()
        self._pipes = None

    def abort(self) -> None:
        """Hang up without a word, as a client that was killed does."""
        if self._pipes is not None:
            self._pipes[1].transport.abort()
        self._pipes = None

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._pipes is None:
            self._pipes = await asyncio.open_connection(self._host, self._port)
        return self._pipes


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    try:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError as error:
        raise ConnectionResetError("the connection ended before the answer did") from error
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    return int(lines[0].split()[1]), headers


async def flood(
    address: str,
    requests: Sequence[Request],
    *,
    clients: int,
    seconds: float,
    rate: float | None = None,
    until: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Send requests from several clients for a while: one after another, or, at a rate, each when it is due.

    `until` ends it early: then a server that does not listen any more is no loss.
    """
    outcome = Outcome()
    started = time.perf_counter()
    end = started + seconds
    turns = _turns(requests)

    async def work(number: int) -> None:
        due = started + (number / rate if rate else 0.0)
        async with Client(address) as client:
            while (now := max(time.perf_counter(), due)) < end and not until():
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                due = now + clients / rate if rate else 0.0
                await _once(client, next(turns), outcome, until)

    await asyncio.gather(*(work(number) for number in range(clients)))
    outcome.seconds = time.perf_counter() - started
    return outcome


async def _once(client: Client, request: Request, outcome: Outcome, until: Callable[[], bool]) -> None:
    sent = time.perf_counter()
    try:
        status, headers, _ = await client.ask(request)
        outcome.count(status, time.perf_counter() - sent, headers)
    except ConnectionRefusedError:
        if not until():
            outcome.lost.append("refused")
    except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
        outcome.lost.append(type(error).__name__)
        client.abort()


def _turns(requests: Sequence[Request]) -> Iterator[Request]:
    place = 0
    while True:
        yield requests[place % len(requests)]
        place += 1


async def drop_streams(address: str, request: Request, count: int, *, together: int = 16) -> None:
    """Begin streams and hang up in the middle of them."""

    async def drop() -> None:
        async with Client(address) as client:
            await client.begin(request)

    for first in range(0, count, together):
        await asyncio.gather(*(drop() for _ in range(min(together, count - first))))
