"""What all routes share: the models, the engine that they compute in, and the rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from clearhead.serve.bounds import Bounds
from clearhead.serve.catalogue import Catalogue
from clearhead.serve.engine import Engine
from clearhead.serve.gate import Policy
from clearhead.serve.metrics import Metrics
from clearhead.serve.refusals import overloaded, too_slow

Result = TypeVar("Result")


@dataclass
class Server:
    """One server."""

    catalogue: Catalogue
    engine: Engine
    policy: Policy
    metrics: Metrics
    _preparing: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "prepare"))
    _being_prepared: int = 0

    @property
    def bounds(self) -> Bounds:
        """What a request may ask for at most."""
        return self.policy.bounds

    async def prepare(self, work: Callable[[], Result], deadline: float) -> Result:
        """Do something that takes a while (tokens are counted, languages guessed) beside the event loop.

        As many requests wait for it as may wait for the engine, and no longer than they have time.
        """
        if self._being_prepared >= self.bounds.queue:
            raise overloaded(1.0)
        self._being_prepared += 1
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.get_running_loop().run_in_executor(self._preparing, work)
        except TimeoutError:
            raise too_slow(self.bounds.seconds) from None
        finally:
            self._being_prepared -= 1

    def close(self) -> None:
        """Answer nobody any more."""
        self.engine.close()
        self.engine.join(seconds=5.0)
        self._preparing.shutdown(wait=False, cancel_futures=True)
