"""Texts in, how they are written out: how much of them a token holds, and how many signs want a token of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from clearhead.text.grouping import CJK_RANGES

LETTERS_A_TOKEN = 3.5
"""About what a token holds where words are spelt with letters."""
SIGNS_A_TOKEN = 1.3
"""The same for Chinese, kana and the like."""
ENOUGH = 1_000_000
"""After so many characters it is clear how a text is written."""
_KANA = re.compile("[ぁ-ヿ]")
_SIGN = re.compile(f"[{''.join(f'{chr(low)}-{chr(high)}' for low, high in CJK_RANGES)}]")


class Script(NamedTuple):
    """How some texts are written."""

    characters_a_token: float = LETTERS_A_TOKEN
    """About what a token of a tokenizer that was trained on them holds."""
    signs: int = 0
    """How many different signs there are that are no letters."""

    def tokens(self, characters: float) -> float:
        """About how many tokens so many characters are."""
        return characters / self.characters_a_token


SPELT = Script()
"""Words that are spelt with letters."""


class Gauge:
    """Looks at one text after the other until it has seen enough."""

    def __init__(self) -> None:
        self._characters = self._num_signs = 0
        self._signs: set[str] = set()

    def add(self, text: str) -> None:
        """Look at a text, or at its beginning if that is enough."""
        text = text[: ENOUGH - self._characters]
        signs = _SIGN.findall(text)
        self._characters, self._num_signs = self._characters + len(text), self._num_signs + len(signs)
        self._signs.update(signs)

    @property
    def is_sure(self) -> bool:
        """Whether it need not look at more."""
        return self._characters >= ENOUGH

    @property
    def script(self) -> Script:
        """How the texts are written that it has seen."""
        signs = self._num_signs / max(1, self._characters)
        return Script(1 / ((1 - signs) / LETTERS_A_TOKEN + signs / SIGNS_A_TOKEN), len(self._signs))


def language_of_signs(texts: Iterable[str]) -> str | None:
    """The language of texts that are written in signs and not in letters: zh, or ja where a tenth of them are kana.

    >>> [language_of_signs([text]) for text in ("我吃了一个苹果。", "りんごを食べた。", "Er heißt 王.")]
    ['zh', 'ja', None]
    """
    characters = signs = kana = 0
    for text in texts:
        text = "".join(text[: ENOUGH - characters].split())
        characters, signs, kana = (
            characters + len(text), signs + len(_SIGN.findall(text)), kana + len(_KANA.findall(text)),
        )  # fmt: skip
        if characters >= ENOUGH:
            break
    # A sign says as much as several letters.
    if 3 * signs <= characters:
        return None
    return "ja" if 10 * kana > signs else "zh"


def scripts_of(rows: Iterable[tuple[str, ...]], columns: int) -> list[Script]:
    """How each column of some rows is written, as far as it takes to be sure.

    >>> scripts_of([("我吃了", "I ate"), ("我", "I")], 2)
    [Script(characters_a_token=1.3, signs=3), Script(characters_a_token=3.5, signs=0)]
    """
    gauges = [Gauge() for _ in range(columns)]
    for row in rows:
        for gauge, text in zip(gauges, row, strict=True):
            gauge.add(text)
        if all(gauge.is_sure for gauge in gauges):
            break
    return [gauge.script for gauge in gauges]
