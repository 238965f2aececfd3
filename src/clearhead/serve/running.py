"""An application in, a server on a port out, until it is told to stop.

When it is told (SIGTERM, Ctrl-C), it says at once that it is not ready, and closes every connection after its answer,
so that clients go elsewhere; a moment later it stops listening; what is under way is finished, if there is time.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from clearhead.errors import UnavailableError
from clearhead.serve.app import Application
from clearhead.serve.gate import CROWDED

LINGER = 0.5
"""Seconds for which new requests are still taken after the server was told to stop: those on their way arrive."""
PATIENCE = 30.0
"""Seconds within which a client must have sent the head of a request, or taken some of what it asked for."""
MOST_CONNECTIONS = 1_000
"""Open at once; the gate refuses what is asked on a further one."""
MARGIN = 3.0
"""Seconds that answers, among them those that say that there is none, have to go out in the end."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise UnavailableError(f"cannot listen on {host}, port {port}: {reason}; choose another with --port") from None
    return listener


def run(application: Application, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until told to stop; `ready` is called when the first request may come."""
    asyncio.run(Stoppable(application, ready).serve([listener]))


class Impatient(H11Protocol):
    """A connection that ends if its client does not come to the point, or asks and does not read the answers."""

    _waiting: asyncio.TimerHandle | None = None
    _unread = 0
    """Bytes that the client had not taken when we began to wait."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            self.app_state = {**self.app_state, CROWDED: True}
        self._wait()

    def on_response_complete(self) -> None:
        """Begin to wait for the next one."""
        super().on_response_complete()
        self._wait()

    def pause_writing(self) -> None:
        """Begin to wait until the client reads."""
        super().pause_writing()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """There is nothing to wait for any more."""
        super().connection_lost(exc)
        if self._waiting is not None:
            self._waiting.cancel()

    def _wait(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._unread = _unread(self.transport)
        self._waiting = self.loop.call_later(PATIENCE, self._lose_patience)

    def _lose_patience(self) -> None:
        is_idle = self.cycle is None or self.cycle.response_complete
        is_written = is_idle or self.flow.write_paused or self.transport.is_closing()
        is_left_over = self.transport.get_write_buffer_size() > 0
        if is_idle and not is_left_over:
            self.transport.close()
        elif is_written and is_left_over and _unread(self.transport) >= self._unread:
            # To close would be to wait until all is read.
            self.transport.abort()
        else:
            self._wait()


def _unread(transport: asyncio.Transport) -> int:
    """Bytes that a client has not taken, with those that the system keeps for it, where that can tell.

    The system keeps megabytes, and takes more from us in large steps only: who reads slowly would seem not to read.
    """
    ours = transport.get_write_buffer_size()
    try:
        import fcntl
        import termios

        handle = transport.get_extra_info("socket").fileno()
        return ours + int(struct.unpack("i", fcntl.ioctl(handle, termios.TIOCOUTQ, bytes(4)))[0])
    except (ImportError, OSError, ValueError):  # Windows, macOS, a socket that is closed
        return ours


def _config(application: Application) -> uvicorn.Config:
    return uvicorn.Config(
        application.gate,
        http=Impatient,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=2048,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=max(1, round(application.server.bounds.drain + MARGIN)),
    )


class Stoppable(uvicorn.Server):
    """A server that drains before it stops."""

    def __init__(self, application: Application, ready: Callable[[], None]) -> None:
        super().__init__(_config(application))
        self._application = application
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Hear what we are told; being told to stop is no failure."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()

        def told(number: int, frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(self.drain)

        before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def drain(self) -> None:
        """Be ready for nobody any more, and stop when all is answered; told twice, stop at once."""
        server = self._application.server
        loop = asyncio.get_running_loop()
        if server.policy.is_draining:
            server.engine.close()
            self.should_exit = True
            return
        server.policy.is_draining = True
        loop.call_later(min(LINGER, server.bounds.drain), self._stop_listening)
        loop.call_later(server.bounds.drain, server.engine.close)

    def _stop_listening(self) -> None:
        self.should_exit = True
