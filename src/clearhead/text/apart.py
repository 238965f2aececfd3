"""A text in, sentences that a model can read out; and back, translations put where the sentences were.

Models learn from sentences, so a text is taken apart: at the ends of lines, at the ends of sentences, and where a
sentence is still too long for the model, at a comma, a space, or in the end anywhere. What stands between sentences
(spaces, line ends) is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

# Possessive, and only at the beginning of a row of signs: a row of thousands is looked at once.
# German closes quotations with “ and «.
_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’“‘»«›‹)\]]*+(?=\s)|(?<!…)…*+[。！？][。！？…]*+[”’」』）]*+")
_WIDE_ENDS = frozenset("。！？")
_LINE = re.compile(r"[^\n\r]+")
_PLACES = (re.compile(r"[,;:，；：、]\s*"), re.compile(r"\s+"))
"""Where a sentence that is too long may be cut, the best places first."""
_WIDE = re.compile(r"[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")
"""Characters of scripts that put no space between sentences."""
SHORT = frozenset((
    "abb", "abs", "bzgl", "bzw", "ca", "corp", "dept", "dipl", "dr", "evtl", "fig", "frl", "ggf", "hr", "hrsg", "ing",
    "inkl", "jr", "ltd", "mio", "mr", "mrd", "mrs", "ms", "nr", "prof", "sog", "sr", "st", "vgl", "vol", "vs", "zzgl",
))  # fmt: skip
"""Words that end with a full stop in the middle of a sentence."""


@dataclass(frozen=True)
class Taken:
    """A text taken apart."""

    sentences: tuple[str, ...]
    between: tuple[str, ...]
    """What stands before the first sentence, between them, and after the last: one more than there are sentences."""

    def together(self, sentences: Sequence[str]) -> str:
        """The same text with other sentences."""
        parts = [self.between[0]]
        for sentence, gap in zip(sentences, self.between[1:], strict=True):
            parts += [sentence, gap]
        return "".join(self._spaced(parts))

    def _spaced(self, parts: list[str]) -> Iterator[str]:
        """Two sentences with nothing between them get a space, unless they are written without."""
        for place, part in enumerate(parts):
            is_inner_gap = place % 2 == 0 and 0 < place < len(parts) - 1
            if is_inner_gap and not part.strip(" ") and "\n" not in part:
                left, right = parts[place - 1], parts[place + 1]
                wide = bool(left and right and _WIDE.match(left[-1]) and _WIDE.match(right[0]))
                yield "" if wide else part or " "
            else:
                yield part


def take_apart(text: str, count: Callable[[str], int] | None = None, longest: int = 0) -> Taken:
    """The sentences of a text; with a count of tokens, none has more than `longest`.

    >>> take_apart("Hallo! Wie geht es Dr. Kurz?\\n\\nGut.").sentences
    ('Hallo!', 'Wie geht es Dr. Kurz?', 'Gut.')
    >>> take_apart("我吃了。你呢？").sentences
    ('我吃了。', '你呢？')
    """
    spans = [span for line in _LINE.finditer(text) for span in _sentences(text, line.start(), line.end())]
    if count is not None:
        spans = [part for span in spans for part in _fitting(text, *span, count, longest)]
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    gaps = tuple(text[edges[place] : edges[place + 1]] for place in range(0, len(edges), 2))
    return Taken(tuple(text[start:end] for start, end in spans), gaps)


def says_something(sentence: str) -> bool:
    """Whether there is anything to translate in a sentence: a letter or a digit.

    >>> says_something("Na ja …"), says_something("… !")
    (True, False)
    """
    return any(sign.isalnum() for sign in sentence)


def _sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the sentences of a line stand, without the spaces around them."""
    at = start
    for found in _END.finditer(text, start, end):
        if found.end() < end and _ends_sentence(text, at, found, end):
            yield from _without_spaces(text, at, found.end())
            at = found.end()
    yield from _without_spaces(text, at, end)


def _ends_sentence(text: str, start: int, found: re.Match[str], end: int) -> bool:
    if not _WIDE_ENDS.isdisjoint(found[0]):
        return True
    if found[0] == ".":
        word = re.search(r"(\w+)$", text[max(start, found.start() - 20) : found.start()])
        # Numbers (am 3. Oktober), single letters (z. B.) and short words (Dr.) go on.
        if word and (word[1].isdigit() or len(word[1]) == 1 or word[1].lower() in SHORT):
            return False
    after = text[found.end() : end].lstrip()[:2].lstrip("\"'“„«‚‘([¿¡–—-")
    return not after or not after[0].islower()


def _without_spaces(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    part = text[start:end]
    if part.strip():
        yield start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())


def _fitting(text: str, start: int, end: int, count: Callable[[str], int], longest: int) -> Iterator[tuple[int, int]]:
    """A sentence in parts that are short enough, cut near the middle until they are."""
    if end - start < 2 or count(text[start:end]) <= longest:
        yield start, end
        return
    middle = (start + end) // 2
    at = _cut(text, start, end, middle)
    for left, right in ((start, at), (at, end)):
        for span in _without_spaces(text, left, right):
            yield from _fitting(text, *span, count, longest)


def _cut(text: str, start: int, end: int, middle: int) -> int:
    """The best place to cut that is neither in the first nor in the last quarter; if there is none, the middle."""
    quarter = (end - start) // 4
    for places in _PLACES:
        found = (place.end() for place in places.finditer(text, start + quarter, end - quarter))
        if cuts := [cut for cut in found if start < cut < end]:
            return min(cuts, key=lambda cut: abs(cut - middle))
    return middle
