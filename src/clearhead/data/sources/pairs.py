"""What every source of pairs has: raw aligned pairs that can be read again, in constant memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from clearhead.data.number_split import Split
from clearhead.data.reasons import Reason
from clearhead.data.sources.settings import DataConfig, Part


class RawPair(NamedTuple):
    """One pair as found; a side that cannot be used is None, and `reason` says why."""

    number: int
    """Its place among all pairs, counted from 1; where there is one file, its line."""
    source: str | None
    target: str | None
    reason: Reason = Reason.KEPT
    part: int = 0
    """Which of the source's parts it belongs to, counted from 0."""


class PairSource(Protocol):
    """Aligned pairs that can be read again and again, in constant memory."""

    @property
    def name(self) -> str:
        """What to call it in messages."""

    @property
    def parts(self) -> Sequence[Part]:
        """The files it is made of, if they are more than one side by side."""

    @classmethod
    def for_split(cls, config: DataConfig, split: Split) -> PairSource | None:
        """Open one split, or None if the settings do not give it."""

    def pairs(self) -> Iterator[RawPair]:
        """All pairs in order, good and bad."""

    def fingerprint(self) -> str:
        """The same for the same content and settings, different otherwise."""

    def notes(self) -> list[str]:
        """What the latest full reading found and repaired."""

    def share_read(self) -> float:
        """How much of it the reading under way has come through, from 0 to 1."""


def fingerprint(kind: str, *settings: Any) -> str:
    """The same for the same kind of source and the same settings and sums."""
    return hashlib.sha256(json.dumps([kind, 1, *settings]).encode()).hexdigest()
