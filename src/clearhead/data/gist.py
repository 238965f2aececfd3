"""A text in, what near duplicates of it share out: its letters and digits, without case, punctuation and spaces."""

from __future__ import annotations

import re
import unicodedata

_NEITHER_LETTER_NOR_DIGIT = re.compile(r"[\W_]+")


def gist(text: str) -> str:
    """The letters and digits of a text in one form; a text that has none stays as it is.

    >>> gist("Don't stop!"), gist("don’t  STOP."), gist("Ｄｏｎｔ　ｓｔｏｐ！"), gist("?!")
    ('dontstop', 'dontstop', 'dontstop', '?!')
    """
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return _NEITHER_LETTER_NOR_DIGIT.sub("", plain.casefold()) or text
