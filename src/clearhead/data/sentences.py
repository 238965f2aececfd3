"""A document in, its sentences out, by rule: European punctuation with a few abbreviations, and Chinese 。！？.

Nothing is lost: joined together, the sentences are the document again.
"""

from __future__ import annotations

import re

# A run of marks is tried from its first one only: a long one that ends nothing would take quadratic time.
_ENDS = re.compile(
    r"""(?P<chinese>[。！？]+[”’」』）】》]*)"""
    r"""|(?P<mark>(?<![.!?…])[.!?…]++)[”’»"')\]]*+(?=\s)"""
    r"""|(?P<line>(?=\n))"""
)
_WORD_BEFORE = re.compile(r"[\w.]+$")
# In small letters, without the last dot.
ABBREVIATIONS = {
    "mr", "mrs", "ms", "dr", "prof", "sr", "jr", "st", "gen", "col", "lt", "sgt", "capt", "rev", "hon", "vs", "etc",
    "e.g", "i.e", "cf", "al", "fig", "vol", "pp", "ca", "approx", "inc", "ltd", "co", "corp", "dept", "est",
    "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec",
    "z.b", "d.h", "usw", "bzw", "u.a", "s.o", "s.u", "nr", "hr", "fr",
}  # fmt: skip


def sentences(document: str) -> list[str]:
    """Cut a document where sentences end; white space between two belongs to the later one.

    >>> sentences("Mr. Ed saw it. He (J. R. Ewing) said: “No!” So what?")
    ['Mr. Ed saw it.', ' He (J. R. Ewing) said: “No!”', ' So what?']
    >>> sentences("它很好。真的！“是吗？”他问")
    ['它很好。', '真的！', '“是吗？”', '他问']
    """
    found: list[str] = []
    start = 0
    for match in _ENDS.finditer(document):
        if _ends_here(document, start, match):
            found.append(document[start : match.end()])
            start = match.end()
    if start < len(document):
        found.append(document[start:])
    return _whole(found)


def _ends_here(document: str, start: int, match: re.Match[str]) -> bool:
    if match["mark"] is None:
        return match.end() > start
    rest = document[match.end() : match.end() + 20].lstrip()
    if rest[:1].islower():
        return False
    if match["mark"] != ".":
        return True
    end = match.start("mark")
    before = _WORD_BEFORE.search(document, max(start, end - 20), end)
    word = before[0] if before else ""
    return not (word.lower() in ABBREVIATIONS or (len(word) == 1 and word.isupper() and word != "I"))


def _whole(found: list[str]) -> list[str]:
    """A piece of nothing but white space belongs to what comes before it, or else after it."""
    merged: list[list[str]] = []
    is_blank = False
    for piece in found:
        if merged and (is_blank or not piece.strip()):
            merged[-1].append(piece)
            is_blank = is_blank and not piece.strip()
        else:
            merged.append([piece])
            is_blank = not piece.strip()
    return ["".join(pieces) for pieces in merged]
