"""A text is the sum of its words: remembered words give what the whole text gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clearhead.errors import DataError
from clearhead.text import TOKENIZERS, Tokenizer, TokenizerConfig, packing

TEXTS = [
    "Two men, one dog; it isn't twenty-three.",
    "Zwei Männer grüßen einen Hund im T-Shirt.",
    "我吃了一个苹果。他说：“你好！” 3.14 10:30",
    "</s> <s> <blank> <unk> are text </s></s></s>",
    "tab\tline\r\nnext\u2028and \x00 end 😀👨‍👩‍👧 O'Brien's ...",
] * 3
TRAINED = {kind: Tokenizer.train(TokenizerConfig(kind=kind, vocab_size=320, min_freq=1), TEXTS) for kind in TOKENIZERS}
SMALL = {
    kind: Tokenizer.train(TokenizerConfig(kind=kind, vocab_size=320, min_freq=1, lowercase=True), TEXTS)
    for kind in TOKENIZERS
}
BLANKS = {
    kind: Tokenizer.train(TokenizerConfig(kind=kind, vocab_size=320, min_freq=1), ["a\n \nb \t \u3000 \n c"] * 9)
    for kind in TOKENIZERS
}
SIGNS = [
    " ",
    " ",
    " ",
    "  ",
    "\t",
    "\u00a0",
    "\u3000",
    "\u0085",
    "\u180e",
    "\u200b",
    "\x1c",
    "\u0301",
    "'s",
    "’ll",
    "￭",
]
PARTS = st.sampled_from(
    [*SIGNS, *" ".join(TEXTS).split(), "n't", ".", ",", ":", "-", "3", "23", "1234", "我", "、", "é"]
)
MIXED = st.lists(PARTS, max_size=12).map("".join)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def unpacked(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [np.frombuffer(row, dtype=tokenizer.id_type).tolist() for row in tokenizer.pack(texts)]


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(texts=st.lists(MIXED | ANY_TEXT, max_size=6))
@example(texts=["", " ", "a", " a", "a ", "a  b", "a   b", "a\u00a0 b", "a \u00a0 b", "a\u00a0  b", "a \n b", "x" * 99])
def test_packed_equals_encoded(kind: str, texts: list[str]) -> None:
    tokenizer = TRAINED[kind]
    whole = [tokenizer.encode(text) for text in texts]
    assert unpacked(tokenizer, texts) == whole
    assert unpacked(tokenizer, texts) == whole, "and again from memory"


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(text=st.text("  \n\t\u00a0\u3000ab", max_size=12))
@example(text="a\n \nb")
def test_white_space_of_several_signs_is_packed_as_it_is_encoded(kind: str, text: str) -> None:
    assert unpacked(BLANKS[kind], [text]) == [BLANKS[kind].encode(text)]


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_real_sentences_are_packed_as_they_are_encoded(kind: str) -> None:
    assert unpacked(TRAINED[kind], TEXTS) == [TRAINED[kind].encode(text) for text in TEXTS]


def test_memory_for_words_is_bounded_and_forgetting_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MOST_WORDS", 50)
    tokenizer = TRAINED["byte"]
    packer = packing.Packer(tokenizer._engine, tokenizer.id_type)
    for start in range(0, 1000, 10):
        texts = [f"word {number} and {number % 3} {'long' * 20}" for number in range(start, start + 10)]
        packed = [np.frombuffer(row, dtype=tokenizer.id_type).tolist() for row in packer.pack(texts)]
        assert packed == [tokenizer.encode(text) for text in texts]
        assert len(packer._first) <= 90 and len(packer._later) <= 90
    assert not any(len(word) > packing.LONGEST_WORD for word in packer._later.young)


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(DataError, match="lone surrogate"):
        TRAINED["bpe"].pack(["fine", "a\ud800"])


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(text=MIXED | ANY_TEXT)
@example(text=" ΟΔΟΣ İstanbul STRASSE")
def test_in_small_letters_too(kind: str, text: str) -> None:
    tokenizer = SMALL[kind]
    assert unpacked(tokenizer, [text]) == [tokenizer.encode(text)]
