"""A server with stand-ins in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from clearhead.serve.app import Application
from clearhead.serve.bounds import Bounds
from clearhead.serve.catalogue import Catalogue, Served
from clearhead.serve.gate import Policy
from clearhead.serve.running import Stoppable, listen


class Here:
    """A server in a thread of this process."""

    def __init__(self, *models: Served, policy: dict[str, Any] | None = None, **bounds: Any) -> None:
        self.application = Application(Catalogue(models), Policy(Bounds(rate=0, **bounds), **(policy or {})))
        self._listener = listen("127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ready = threading.Event()
        self._stoppable = Stoppable(self.application, self._ready.set)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        async def serve() -> None:
            self.loop = asyncio.get_running_loop()
            await self._stoppable.serve([self._listener])

        asyncio.run(serve())

    def __enter__(self) -> Here:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self._stoppable.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    def drain(self) -> None:
        """What SIGTERM does."""
        self.loop.call_soon_threadsafe(self._stoppable.drain)

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()
