"""How texts are written tells how many tokens they will be."""

from __future__ import annotations

import pytest

from clearhead.data.numbers import spell
from clearhead.text import Tokenizer, TokenizerConfig
from clearhead.text.script import ENOUGH, SPELT, Gauge, scripts_of

CHINESE = ["我吃了一个苹果。", "他们昨天晚上没有来。", "你叫什么名字？", "今天天气很好，我们去公园吧。"]


def test_letters_and_signs_are_told_apart() -> None:
    source, target = scripts_of(zip(CHINESE, ["I ate an apple."] * 4, strict=True), 2)
    assert target == SPELT
    assert source.characters_a_token < 1.5 and source.signs == len(set("".join(CHINESE)))


def test_a_mixed_text_lies_between() -> None:
    gauge = Gauge()
    gauge.add("我吃了 an apple")
    assert 1.3 < gauge.script.characters_a_token < 3.5


def test_of_a_long_text_the_beginning_is_enough() -> None:
    gauge = Gauge()
    gauge.add("a" * (ENOUGH - 1))
    assert not gauge.is_sure
    gauge.add("b我")
    assert gauge.is_sure and gauge.script == SPELT


def test_without_texts_words_are_taken_to_be_spelt() -> None:
    assert Gauge().script == SPELT


@pytest.mark.parametrize("language", ["de", "en", "zh"])
def test_a_tokenizer_makes_about_as_many_tokens(language: str) -> None:
    texts = [spell(number, language) for number in range(0, 900_000, 700)]
    (script,) = scripts_of(((text,) for text in texts), 1)
    tokenizer = Tokenizer.train(TokenizerConfig(kind="bpe", vocab_size=300 + script.signs), texts)
    tokens = sum(len(tokenizer.encode(text)) for text in texts)
    assert tokens / 2 < script.tokens(sum(map(len, texts))) < tokens * 2
