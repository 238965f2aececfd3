"""Ids one by one in, text out as soon as it is sure: whole characters only, and nothing at or after a stop string.

A stream needs a tokenizer whose text is that of its tokens end to end: `word`, which makes up spaces, will not do.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from clearhead.text.tokenizer import Tokenizer


class TextStream:
    """The text of ids that are still coming; all that was given together is what `decode` gives, up to a stop."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self.is_stopped = False
        """Whether a stop string has come: there will be no more text."""
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        """What was said, but may be the beginning of a stop string."""

    def add(self, ids: Iterable[int]) -> str:
        """The text that is sure now, after these further ids."""
        return self._given(self._characters.decode(self._tokenizer.raw(ids)), is_all=False)

    def end(self) -> str:
        """The rest, now that nothing more comes; a character that was begun and not ended becomes U+FFFD."""
        return self._given(self._characters.decode(b"", final=True), is_all=True)

    def _given(self, text: str, *, is_all: bool) -> str:
        if self.is_stopped:
            return ""
        self._held += text
        found = cut(self._held, self._stop)
        self.is_stopped = found is not None
        if found is None:
            found = self._held if is_all else self._held[: len(self._held) - _begun(self._held, self._stop)]
        self._held = self._held[len(found) :]
        return found


class StopStrings:
    """Whether the text of ids has come to a stop string, asked after every id."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        self._tokenizer, self._text = tokenizer, tuple(stop)
        self._stop = [text.encode() for text in stop]
        # A token that is text has at least one byte: a stop string that ends in the newest begins in one of these.
        self._tokens = max(map(len, self._stop), default=0)

    def __call__(self, ids: Sequence[int]) -> bool:
        if self._tokenizer.kind == "word":  # Where the spaces are is known of the whole alone.
            return cut(self._tokenizer.decode(ids), self._text) is not None
        newest = self._tokenizer.raw(ids[len(ids) - self._tokens :] if len(ids) > self._tokens else ids)
        return any(stop in newest for stop in self._stop)


def cut(text: str, stop: Sequence[str]) -> str | None:
    """A text up to the first stop string in it, or None if there is none.

    >>> cut("to be. Or not", ["not", ". "]), cut("to be", ["not"])
    ('to be', None)
    """
    places = [place for place in (text.find(one) for one in stop) if place >= 0]
    return text[: min(places)] if places else None


def _begun(text: str, stop: Sequence[str]) -> int:
    """How many characters at the end of a text may be the beginning of a stop string."""
    longest = max(map(len, stop), default=0)
    for size in range(min(longest - 1, len(text)), 0, -1):
        if any(one.startswith(text[-size:]) for one in stop):
            return size
    return 0
