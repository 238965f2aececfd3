"""What a request may ask for at most; every bound is on unless it is changed."""

from __future__ import annotations

from pydantic import Field

from clearhead.config import Record


class Bounds(Record):
    """The limits of a server."""

    body: int = Field(2_000_000, ge=1_000)
    """Bytes of a request."""
    characters: int = Field(5_000, ge=1)
    """Characters of one text."""
    texts: int = Field(64, ge=1)
    """Texts of one request."""
    results: int = Field(8, ge=1)
    """Results for one text: `n`, `best_of` and `alternatives`."""
    stops: int = Field(4, ge=1)
    """Texts to stop at."""
    tokens: int = Field(1_024, ge=1)
    """Tokens of one completion."""
    looks: int = Field(256, ge=1)
    """Tokens of a text whose attention is shown."""
    queue: int = Field(64, ge=1)
    """Requests that wait; a further one is refused at once."""
    seconds: float = Field(60.0, gt=0, allow_inf_nan=False)
    """Time that a request may take, waiting included."""
    rate: int = Field(6_000, ge=0)
    """Requests a minute from one address, and with one key; 0 is no limit."""
    drain: float = Field(20.0, ge=0, allow_inf_nan=False)
    """Seconds that requests under way are given when the server is told to stop."""

    @property
    def burst(self) -> int:
        """Requests that may come at once, after a pause."""
        return max(1, self.rate // 10)
