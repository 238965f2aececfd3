"""HTML in, the texts between its tags out; and back, other texts in their places between the same tags."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from html.parser import HTMLParser

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
    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=False)
        self.parts: list[str] = []
        self.places: list[int] = []
        self._silent: list[str] = []
        self._is_text = False
        self.feed(source)
        self.close()

    def _add(self, part: str, *, is_text: bool) -> None:
        is_text = is_text and not self._silent
        if is_text and self._is_text:
            self.parts[-1] += part
        else:
            self.parts.append(part)
            if is_text:
                self.places.append(len(self.parts) - 1)
        self._is_text = is_text

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._add(self.get_starttag_text() or "", is_text=False)
        if tag in SILENT:
            self._silent.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self._add(self.get_starttag_text() or "", is_text=False)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._silent:
            del self._silent[self._silent.index(tag) :]
        self._add(f"</{tag}>", is_text=False)

    def handle_data(self, data: str) -> None:
        self._add(data, is_text=True)

    def handle_entityref(self, name: str) -> None:
        self._add(f"&{name};", is_text=True)

    def handle_charref(self, name: str) -> None:
        self._add(f"&#{name};", is_text=True)

    def handle_comment(self, data: str) -> None:
        self._add(f"<!--{data}-->", is_text=False)

    def handle_decl(self, decl: str) -> None:
        self._add(f"<!{decl}>", is_text=False)

    def unknown_decl(self, data: str) -> None:
        self._add(f"<![{data}]>", is_text=False)

    def handle_pi(self, data: str) -> None:
        self._add(f"<?{data}>", is_text=False)
