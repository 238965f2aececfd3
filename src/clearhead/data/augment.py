"""A training pair in, the altered copies it is also trained on out; a new alteration is one function and one line.

Which pairs are altered follows from their texts and the seed, so it does not change with their order or their number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b

from pydantic import Field

from clearhead.config import Record
from clearhead.data.lexicon import Lexicon, exchanged

Alteration = Callable[[str, str], tuple[str, str]]
Pairs = Iterable[tuple[str, str]]

_FINAL_MARKS = re.compile(r"[.!?…。！？．\s]+$")
_WORD = re.compile(r"\b[^\W\d_]{3,}\b")
_ONSETS = re.findall(r"\w+", "b br ch d f g gr h j k kl l m n p r s st t tr v w z")
_VOWELS = re.findall(r"\w+", "a a e e i i o o u au ei ie")
_CODAS = ("", "", "", "l", "m", "n", "r", "s")
_ENDINGS = re.findall(r"\w+", "a an berg e el en er ia in ina ke la mann o ra sen t to y")
_STEMS = re.findall(
    r"\w+",
    "Alten Birken Buchen Düssel Eber Falken Frei Grün Ham Hirsch Kaiser König Lands Lauter Mühl Mün Neu Ober Peter "
    "Regens Reut Schön Stein Stutt Wald Wein Wies Wolf",
)
_TAILS = re.findall(
    r"\w+", "au bach berg brück burg chen dorf feld furt gart hausen heim hofen ingen mann meier rode sen stadt tal"
)
_NUMBER = re.compile(r"[0-9]{2,65}")


class Augment(Record):
    """Which share of the training pairs is also seen in another form, beside the pair itself."""

    bare: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share that is also seen without final punctuation on both sides: people leave it out when they type."""

    lower: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share that is also seen with the source in lower case, its translation unchanged."""

    names: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share of pairs with the same name on both sides that is also seen with an invented one: most names that
    people write were never seen in training, and are to be spelt as they stand."""

    numbers: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share of pairs with the same digits on both sides that is also seen with others there: there are more numbers
    than any corpus has."""

    swaps: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share of pairs in which a rare word fits that is also seen with it, and its translation, in the place of
    another: a word that was seen once is learnt as one of that sentence, and not as one of the language. What stands
    for what is learnt from the pairs themselves, where words have spaces between them."""


def bare(source: str, target: str) -> tuple[str, str]:
    """Both sides without the marks at their ends.

    >>> bare("Wo bist du?", "Where are you?"), bare("你好。", "Hello.")
    (('Wo bist du', 'Where are you'), ('你好', 'Hello'))
    """
    return _FINAL_MARKS.sub("", source), _FINAL_MARKS.sub("", target)


def lower(source: str, target: str) -> tuple[str, str]:
    """The source in lower case."""
    return source.lower(), target


def names(source: str, target: str) -> tuple[str, str]:
    """One of the names that stand on both sides exchanged for an invented one, which follows from the texts.

    A name is a word with a capital letter that both sides spell alike, with an s or 's at its end or without. What else
    is spelt alike, months or the first words of sentences, is taken for one as well: it stays alike on both sides.

    >>> names("Tom ist hier.", "Tom is here."), names("Das ist Toms Hut.", "That is Tom's hat.")
    (('Kama ist hier.', 'Kama is here.'), ('Das ist Weinburgs Hut.', "That is Weinburg's hat."))
    >>> names("Wo bist du?", "Where are you?")
    ('Wo bist du?', 'Where are you?')
    """
    words = dict.fromkeys(word for word in _WORD.findall(f"{target} {source}") if word.istitle())
    found = (re.compile(rf"\b{word}(?=s?\b)") for word in words)
    invented = _invented(source, target)
    return _exchanged_alike(source, target, found, lambda _: invented)


def numbers(source: str, target: str) -> tuple[str, str]:
    """One of the numbers that stand in digits on both sides exchanged for another that begins like it.

    >>> numbers("Das war 1985.", "That was in 1985."), numbers("他有12本书。", "He has 12 books.")
    (('Das war 1317.', 'That was in 1317.'), ('他有11本书。', 'He has 11 books.'))
    """
    found = (re.compile(rf"(?<!\d){number}(?!\d)") for number in dict.fromkeys(_NUMBER.findall(target)))
    steps = _bytes(64, "number", source, target)

    def other(number: str) -> str:
        later = ((int(digit) + 1 + step % 9) % 10 for digit, step in zip(number[1:], steps, strict=False))
        return number[0] + "".join(map(str, later))

    return _exchanged_alike(source, target, found, other)


def _exchanged_alike(
    source: str, target: str, found: Iterable[re.Pattern[str]], other: Callable[[str], str]
) -> tuple[str, str]:
    """One of what stands as often on both sides, chosen by the texts, exchanged on both."""
    alike = [what for what in found if len(what.findall(source)) == len(what.findall(target))]
    if not alike:
        return source, target
    chosen = alike[int(_place("one of", source, target) * len(alike))]
    source_text, target_text = (chosen.sub(lambda found: other(found[0]), text) for text in (source, target))
    return source_text, target_text


def _invented(*facts: str) -> str:
    """A name of a syllable or two and an ending, or one made like those of German places, which follows from the facts.

    >>> [_invented(text) for text in "abc"]
    ['Rinto', 'Oberrode', 'Klosnosina']
    """
    numbers = iter(_bytes(16, "name", *facts))
    if next(numbers) % 4 == 0:
        return "".join(part[next(numbers) % len(part)] for part in (_STEMS, _TAILS))
    syllable = (_ONSETS, _VOWELS, _CODAS)
    parts = (*(syllable * (1 + next(numbers) % 2)), _ENDINGS)
    return "".join(part[next(numbers) % len(part)] for part in parts).capitalize()


def swaps(pairs: Pairs) -> Alteration:
    """What exchanges a word for a rare one that these pairs have in a place of the same kind, chosen by the texts."""
    lexicon = Lexicon.learn(pairs)

    def swap(source: str, target: str) -> tuple[str, str]:
        choices = lexicon.exchanges(source, target)
        if not choices:
            return source, target
        chosen = choices[int(_place("swap", source, target) * len(choices))]
        return exchanged(source, target, *chosen)

    return swap


class Alterer:
    """Which other forms training pairs are seen in."""

    def __init__(self, augment: Augment, seed: int, pairs: Callable[[], Pairs]) -> None:
        """`pairs` gives those that are trained on, to alterations that learn from them, when they are first wanted."""
        self.augment = augment
        self.seed = seed
        self._pairs = pairs
        self._learnt: dict[str, Alteration] = {}

    def altered(self, source: str, target: str) -> Iterator[tuple[str, str]]:
        """The other forms in which a pair is seen; a form that is the pair itself, or empty, is none."""
        for name in ALTERATIONS:
            share = getattr(self.augment, name)
            if share and _place(name, source, target, self.seed) < share:
                changed = self._alteration(name)(source, target)
                if changed != (source, target) and all(changed):
                    yield changed

    def _alteration(self, name: str) -> Alteration:
        if name not in self._learnt:
            self._learnt[name] = ALTERATIONS[name](self._pairs())
        return self._learnt[name]


def _place(*facts: object) -> float:
    """A number from 0 to 1 that follows from the facts alone."""
    return int.from_bytes(_bytes(8, *facts), "little") / 2**64


def _bytes(number: int, *facts: object) -> bytes:
    """So many bytes that follow from the facts alone."""
    return blake2b("\n".join(map(str, facts)).encode(), digest_size=number).digest()


def _always(alteration: Alteration) -> Callable[[Pairs], Alteration]:
    return lambda _: alteration


ALTERATIONS: dict[str, Callable[[Pairs], Alteration]] = {
    "bare": _always(bare),
    "lower": _always(lower),
    "names": _always(names),
    "numbers": _always(numbers),
    "swaps": swaps,
}
