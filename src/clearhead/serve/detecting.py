"""A text in, the languages it may be in out, each with a confidence of 0 to 100 that is low for short texts."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

READ = 1_000
"""Characters of a text that are looked at."""
ENOUGH = 40
"""Letters from which on a text is not short; a character of a script with thousands of them counts as four."""
LEAST = 0.01
"""Below this probability a language is not mentioned."""
_LOADING = threading.Lock()


class Detected(NamedTuple):
    """A language that a text may be in."""

    language: str
    confidence: float


def detect(text: str, known: Sequence[str] | None) -> list[Detected]:
    """The known languages (None is all) that a text may be in, likeliest first; if it is in none, English, with 0.

    All languages compete, also those that are not known: a text in one of these gets low confidences.
    """
    text = text[:READ]
    trust = min(1.0, _weight(text) / ENOUGH)
    ranked = _identifier().rank(text) if trust else []
    found = [Detected(name, round(100 * float(share) * trust, 1)) for name, share in ranked if share >= LEAST]
    found = [one for one in found if known is None or one.language in known]
    return found or [Detected("en" if known is None or "en" in known else next(iter(known), "en"), 0.0)]


def _weight(text: str) -> int:
    return sum(4 if ord(letter) >= 0x3040 else 1 for letter in text if letter.isalpha())


@functools.cache
def _load() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _identifier() -> Any:
    with _LOADING:
        return _load()
