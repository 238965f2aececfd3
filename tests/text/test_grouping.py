"""Sub-words become words again, in every script and from every kind of tokenizer."""

from __future__ import annotations

import functools

import pytest

from clearhead.text.kinds import TOKENIZERS, TokenizerConfig
from clearhead.text.tokenizer import Tokenizer

TEXTS = {
    "Ein Mann fährt Rad.": ["Ein", "Mann", "fährt", "Rad", "."],
    "twenty-three": ["twenty", "-", "three"],
    "He doesn't know O'Brien, 3.14 or 10:30!": [
        "He", "doesn't", "know", "O'Brien", ",", "3.14", "or", "10:30", "!",
    ],
    "Tag 👋🏽 du": ["Tag", "👋🏽", "du"],
    "مرحبا بالعالم": ["مرحبا", "بالعالم"],
    "<script>": ["<", "script", ">"],
    "</s>": ["</", "s", ">"],
}  # fmt: skip


@functools.cache
def tokenizer(kind: str) -> Tokenizer:
    texts = [*TEXTS, "我吃了苹果", "我吃了一个苹果。", "苹果"] * 3
    return Tokenizer.train(TokenizerConfig(kind=kind, vocab_size=300, min_freq=1), texts)


def spelled(made: Tokenizer, text: str) -> list[str]:
    """The words of a text, put together from the pieces that share a number."""
    ids = made.encode(text)
    numbers = made.words(ids)
    assert numbers == sorted(numbers) and set(numbers) == set(range(numbers[-1] + 1))
    pieces = [[index for index, own in zip(ids, numbers, strict=True) if own == number] for number in set(numbers)]
    return [made.decode(word).strip() for word in pieces]


@pytest.mark.parametrize("kind", [kind for kind in TOKENIZERS if kind != "word"])
@pytest.mark.parametrize("text", TEXTS)
def test_words_are_what_a_reader_would_call_words(kind: str, text: str) -> None:
    assert spelled(tokenizer(kind), text) == TEXTS[text]


def test_word_tokens_go_together_only_where_a_word_was_cut() -> None:
    made = tokenizer("word")
    assert spelled(made, "He doesn't know O'Brien.") == ["He", "doesn't", "know", "O'Brien", "."]
    assert spelled(made, "我吃了苹果") == list("我吃了苹果")


def test_a_piece_of_chinese_is_a_word_and_bytes_of_one_character_belong_together() -> None:
    assert spelled(tokenizer("byte"), "我吃了苹果。") == list("我吃了苹果。")
    assert spelled(tokenizer("char"), "我吃了") == list("我吃了")
    made = tokenizer("bpe")
    ids = made.encode("我吃了苹果龍")
    whole = [piece for piece in made.pieces(ids) if "\\x" not in piece]
    assert "苹果" in whole and len(ids) > len(whole), "a piece with a whole word, and a character cut into bytes"
    assert spelled(made, "我吃了苹果龍") == [*whole, "龍"]


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_control_tokens_stand_alone(kind: str) -> None:
    made = tokenizer(kind)
    (first, *_) = made.encode("Mann")
    assert made.words([0, first, 1, 1, 3, first]) == [0, 1, 2, 3, 4, 5]
    assert made.words([]) == []


def test_broken_bytes_are_grouped_all_the_same() -> None:
    made = tokenizer("byte")
    ids = made.encode("我")
    assert made.words([ids[1], ids[0], *made.encode("a")]) == [0, 0, 1]
