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


class Augment(Record):
    """Which share of the training pairs is also seen in another form, beside the pair itself."""

    bare: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share that is also seen without final punctuation on both sides: people leave it out when they type."""

    lower: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share that is also seen with the source in lower case, its translation unchanged."""


def bare(source: str, target: str) -> tuple[str, str]:
    """Both sides without the marks at their ends.

    >>> bare("Wo bist du?", "Where are you?"), bare("你好。", "Hello.")
    (('Wo bist du', 'Where are you'), ('你好', 'Hello'))
    """
    return _FINAL_MARKS.sub("", source), _FINAL_MARKS.sub("", target)


def lower(source: str, target: str) -> tuple[str, str]:
    """The source in lower case."""
    return source.lower(), target


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


ALTERATIONS: dict[str, Alteration] = {"bare": bare, "lower": lower}
