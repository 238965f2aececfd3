"""What happens in, Prometheus' text out; labels are our own routes, kinds and codes, never what a client has sent."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from clearhead.version import VERSION

METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """The counts of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        name, here = "clearhead", self._registry
        self._requests = Counter(
            f"{name}_requests", "Requests that were answered", ["route", "method", "status"], registry=here
        )
        self._seconds = Histogram(
            f"{name}_request_seconds", "Time from a request to the end of its answer", ["route"],
            buckets=SECONDS, registry=here,
        )  # fmt: skip
        self._refused = Counter(f"{name}_refused", "Requests that were refused", ["reason"], registry=here)
        self._rows = Histogram(f"{name}_batch_rows", "Rows of a batch", ["task"], buckets=ROWS, registry=here)
        self._tokens = Counter(f"{name}_tokens", "Tokens in batches, padding included", ["task"], registry=here)
        self._busy = Counter(f"{name}_busy_seconds", "Time spent on batches", ["task"], registry=here)
        self._cancelled = Counter(f"{name}_cancelled", "Requests whose client left", registry=here)
        Gauge(f"{name}_info", "Version", ["version"], registry=here).labels(VERSION).set(1)

    def watch(self, name: str, about: str, value: Callable[[], float]) -> None:
        """A number that is asked for whenever the metrics are."""
        Gauge(f"clearhead_{name}", about, registry=self._registry).set_function(value)

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._requests.labels(route, method if method in METHODS else "other", str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def refused(self, reason: str) -> None:
        """A request was refused before it reached its route."""
        self._refused.labels(reason).inc()

    def batch(self, task: str, rows: int, tokens: int, seconds: float) -> None:
        """A batch is done."""
        self._rows.labels(task).observe(rows)
        self._tokens.labels(task).inc(tokens)
        self._busy.labels(task).inc(seconds)

    def cancelled(self) -> None:
        """Somebody left before he had his answer."""
        self._cancelled.inc()

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)
