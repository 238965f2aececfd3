"""A training pair in, the altered copies it is also trained on out; a new alteration is one function and one line.

Which pairs are altered follows from their texts and the seed, so it does not change with their order or their number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from hashlib import blake2b

from pydantic import Field

from clearhead.config import Record

Alteration = Callable[[str, str], tuple[str, str]]

_FINAL_MARKS = re.compile(r"[.!?…。！？．\s]+$")
_WORD = re.compile(r"\b[^\W\d_]{3,}\b")
_ONSETS = re.findall(r"\w+", "b br ch d f g gr h j k kl l m n p r s st t tr v w z")
_VOWELS = re.findall(r"\w+", "a a e e i i o o u au ei ie")
_CODAS = ("", "", "", "l", "m", "n", "r", "s")
_ENDINGS = re.findall(r"\w+", "a an berg e el en er ia in ina ke la mann o ra sen t to y")


class Augment(Record):
    """Which share of the training pairs is also seen in another form, beside the pair itself."""

    bare: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share that is also seen without final punctuation on both sides: people leave it out when they type."""

    lower: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share that is also seen with the source in lower case, its translation unchanged."""

    names: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share of pairs with the same name on both sides that is also seen with an invented one: most names that
    people write were never seen in training, and are to be spelt as they stand."""


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
    """The first name that stands on both sides exchanged for an invented one, which follows from the texts.

    A name is a word with a capital letter that both sides spell alike, with an s or 's at its end or without. What else
    is spelt alike, months or the first words of sentences, is taken for one as well: it stays alike on both sides.

    >>> names("Tom ist hier.", "Tom is here."), names("Das ist Toms Hut.", "That is Tom's hat.")
    (('Stila ist hier.', 'Stila is here.'), ('Das ist Kukes Hut.', "That is Kuke's hat."))
    >>> names("Wo bist du?", "Where are you?")
    ('Wo bist du?', 'Where are you?')
    """
    words = (word for word in _WORD.findall(f"{target} {source}") if word.istitle())
    for word in dict.fromkeys(words):
        name = re.compile(rf"\b{word}(?=s?\b)")
        if len(name.findall(source)) == len(name.findall(target)):
            invented = _invented(source, target)
            return name.sub(invented, source), name.sub(invented, target)
    return source, target


def _invented(*facts: str) -> str:
    """A name of a syllable or two and an ending, which follows from the facts.

    >>> [_invented(text) for text in "abc"]
    ['Rumtoler', 'Faina', 'Veirgrosy']
    """
    numbers = iter(blake2b("\n".join(("name", *facts)).encode(), digest_size=16).digest())
    syllable = (_ONSETS, _VOWELS, _CODAS)
    parts = (*(syllable * (1 + next(numbers) % 2)), _ENDINGS)
    return "".join(part[next(numbers) % len(part)] for part in parts).capitalize()


def altered(source: str, target: str, augment: Augment, seed: int) -> Iterator[tuple[str, str]]:
    """The other forms in which a pair is seen; a form that is the pair itself, or empty, is none."""
    for name, alter in ALTERATIONS.items():
        share = getattr(augment, name)
        if share and _place(name, source, target, seed) < share:
            changed = alter(source, target)
            if changed != (source, target) and all(changed):
                yield changed


def _place(*facts: object) -> float:
    """A number from 0 to 1 that follows from the facts alone."""
    digest = blake2b("\n".join(map(str, facts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2**64


ALTERATIONS: dict[str, Alteration] = {"bare": bare, "lower": lower, "names": names}
