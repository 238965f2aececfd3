"""A file of more pairs in, those of them that may be trained on beside the pairs of a corpus out.

None of them is ever held out. What a model has made of a training pair may be word for word what was held out; then it
may not be trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from clearhead.data.limits import Limits, judge
from clearhead.data.reasons import Reason
from clearhead.data.sources.files import TabSeparated


class MorePairs:
    """Source and target in the first two columns of a tab-separated file."""

    def __init__(self, path: Path, limits: Limits, is_held_out: Callable[[str, str], bool]) -> None:
        self._file = TabSeparated(path)
        self._limits, self._is_held_out = limits, is_held_out

    def pairs(self, first: int) -> Iterator[tuple[int, str, str]]:
        """Those that may be used, numbered from `first` on by their lines."""
        for raw in self._file.pairs():
            texts = (raw.source or "").strip(), (raw.target or "").strip()
            is_fit = raw.reason is Reason.KEPT and judge(*texts, self._limits) is Reason.KEPT
            if is_fit and not self._is_held_out(*texts):
                yield first + raw.number - 1, *texts

    def fingerprint(self) -> str:
        """The same for the same file."""
        return self._file.fingerprint()
