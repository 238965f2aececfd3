"""Ids in, tokens as a person reads them out: what is written, which word it is a part of, whether it is text at all."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID
from clearhead.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Token:
    """One token."""

    text: str
    """As it is shown; the space before a word is ▁."""
    word: int
    """The number of its word: pieces of one word share it."""
    special: bool = False
    """Whether it stands for no text: <s>, </s>, <blank>."""

    @property
    def is_punctuation(self) -> bool:
        """Whether it is made of punctuation marks only."""
        signs = self.text.strip("▁")
        return not self.special and bool(signs) and all(unicodedata.category(sign)[0] == "P" for sign in signs)


def tokens_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[Token]:
    """The tokens of ids."""
    rows = zip(tokenizer.pieces(ids), tokenizer.words(ids), ids, strict=True)
    return [Token(text, word, index in (BOS_ID, EOS_ID, PAD_ID)) for text, word, index in rows]
