"""HTML in, the texts between its tags out; and back, other texts in their places between the same tags."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import pairwise

SILENT = ("script", "style", "code", "pre", "textarea")
"""What stands inside these is no text."""


@dataclass(frozen=True)
class Marked:
    """A piece of HTML taken apart."""

    parts: tuple[str, ...]
    """Tags and texts as they stand there ..."""
    places: tuple[int, ...]
    """... and which of them are texts."""

    @property
    def texts(self) -> list[str]:
        """The texts, as a reader sees them."""
        return [html.unescape(self.parts[place]) for place in self.places]

    def together(self, texts: Sequence[str]) -> str:
        """The same HTML with other texts."""
        parts = list(self.parts)
        for place, text in zip(self.places, texts, strict=True):
            parts[place] = html.escape(text, quote=False)
        return "".join(parts)


def take_marked(source: str) -> Marked:
    """The tags and texts of a piece of HTML; a broken one is taken as a browser would.

    >>> take_marked("<p class=a>Hallo <b>Welt</b> &amp; ihr</p>").texts
    ['Hallo ', 'Welt', ' & ihr']
    """
    reader = _Reader(source)
    return Marked(tuple(reader.parts), tuple(reader.places))


class _Reader(HTMLParser):
    """Notes where each tag and text begins, and cuts the source there: what is no text stays as it was written."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=False)
        self._lines = [0]
        for line in source.split("\n")[:-1]:
            self._lines.append(self._lines[-1] + len(line) + 1)
        self._silent: list[str] = []
        self._starts: list[tuple[int, bool]] = []
        self.feed(source)
        self.close()
        self.parts: list[str] = []
        self.places: list[int] = []
        if source and not self._starts:
            self._starts.append((0, True))
        starts = [*self._starts, (len(source), False)]
        for (start, is_text), (end, _) in pairwise(starts):
            if is_text:
                self.places.append(len(self.parts))
            self.parts.append(source[start:end])

    def _begin(self, *, is_text: bool) -> None:
        line, column = self.getpos()
        is_text = is_text and not self._silent
        # One text, though the parser tells its pieces one by one.
        if not (self._starts and is_text and self._starts[-1][1]):
            # Whatever the parser has passed over in silence belongs to what comes first.
            self._starts.append((self._lines[line - 1] + column if self._starts else 0, is_text))

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._begin(is_text=False)
        if tag in SILENT:
            self._silent.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self._begin(is_text=False)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._silent:
            del self._silent[self._silent.index(tag) :]
        self._begin(is_text=False)

    def handle_data(self, data: str) -> None:
        self._begin(is_text=True)

    def handle_entityref(self, name: str) -> None:
        self._begin(is_text=True)

    def handle_charref(self, name: str) -> None:
        self._begin(is_text=True)

    def handle_comment(self, data: str) -> None:
        self._begin(is_text=False)

    def handle_decl(self, decl: str) -> None:
        self._begin(is_text=False)

    def unknown_decl(self, data: str) -> None:
        self._begin(is_text=False)

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        # A comment up to the next ">", as for a browser; the library's own raises where it cannot read on.
        return self.parse_bogus_comment(i, report)

    def handle_pi(self, data: str) -> None:
        self._begin(is_text=False)
