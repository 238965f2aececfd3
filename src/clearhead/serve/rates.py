"""Who asks in, how long he has to wait out: a bucket for each address and each key, which fills up again steadily."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

MOST_BUCKETS = 10_000
"""Those who have not asked for the longest are forgotten: their buckets are the fullest."""


class Rates:
    """At most `rate` requests a minute from each, of which `burst` may come at once; a rate of 0 is no limit."""

    def __init__(self, rate: int, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, who: str) -> float:
        """Count one request, or say after how many seconds it is worth trying again."""
        if not self.rate:
            return 0.0
        now = self._clock()
        left, since = self._buckets.pop(who, (float(self._burst), now))
        left = min(float(self._burst), left + (now - since) * self.rate / 60)
        self._buckets[who] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) * 60 / self.rate


def neighbourhood(address: str) -> str:
    """What one client can hardly change of his address: all of it, or the network part of IPv6.

    >>> neighbourhood("192.0.2.7"), neighbourhood("2001:db8:1:2:3:4:5:6"), neighbourhood("testclient")
    ('192.0.2.7', '2001:db8:1:2::/64', 'testclient')
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))
