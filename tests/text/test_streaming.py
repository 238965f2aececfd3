"""Text that comes token by token is the text that comes at once, in whole characters and up to a stop."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.text import BOS_ID, EOS_ID, Tokenizer, TokenizerConfig
from clearhead.text.streaming import StopStrings, TextStream, cut

TEXTS = ["To be, or not to be", "我吃了一个苹果 🙂", "naïve\nline"]
SIGNS = "To be,我🙂ï\n"


@pytest.fixture(scope="module")
def tokenizers() -> list[Tokenizer]:
    configs = [TokenizerConfig(kind=kind, vocab_size=270) for kind in ("bpe", "char", "byte")]
    return [Tokenizer.train(config, TEXTS * 3) for config in configs]


def streamed(tokenizer: Tokenizer, ids: list[int], stop: list[str]) -> list[str]:
    stream = TextStream(tokenizer, stop)
    return [*(stream.add([index]) for index in ids), stream.end()]


@settings(max_examples=60)
@given(st.text(SIGNS, max_size=20))
def test_what_comes_token_by_token_is_what_comes_at_once(tokenizers: list[Tokenizer], text: str) -> None:
    for tokenizer in tokenizers:
        ids = tokenizer.encode(text)
        assert "".join(streamed(tokenizer, ids, [])) == tokenizer.decode(ids) == text


@settings(max_examples=100)
@given(st.lists(st.integers(0, 255), max_size=12))
def test_bytes_that_are_no_text_come_as_decoding_shows_them(tokenizers: list[Tokenizer], numbers: list[int]) -> None:
    byte = tokenizers[2]
    ids = [4 + number for number in numbers]
    assert "".join(streamed(byte, ids, [])) == byte.decode(ids)


def test_a_character_comes_whole_or_not_yet(tokenizers: list[Tokenizer]) -> None:
    byte = tokenizers[2]
    assert streamed(byte, byte.encode("a🙂"), []) == ["a", "", "", "", "🙂", ""]
    assert streamed(byte, byte.encode("我")[:2], []) == ["", "", "\ufffd"]


def test_control_tokens_are_no_text(tokenizers: list[Tokenizer]) -> None:
    for tokenizer in tokenizers:
        assert "".join(streamed(tokenizer, [BOS_ID, *tokenizer.encode("be"), EOS_ID], [])) == "be"


@settings(max_examples=150)
@given(st.text(SIGNS, max_size=20), st.lists(st.text(SIGNS, min_size=1, max_size=4), min_size=1, max_size=3))
def test_nothing_at_or_after_a_stop_is_ever_given(tokenizers: list[Tokenizer], text: str, stop: list[str]) -> None:
    for tokenizer in tokenizers:
        ids, stops = tokenizer.encode(text), StopStrings(tokenizer, stop)
        # As a search does it: the first token after which a stop string has come is the last.
        end = next((count for count in range(1, len(ids) + 1) if stops(ids[:count])), len(ids))
        said = tokenizer.decode(ids[:end])
        wanted = cut(said, stop)
        assert (wanted is None) == (cut(text, stop) is None)
        given_away = streamed(tokenizer, ids[:end], stop)
        assert "".join(given_away) == (said if wanted is None else wanted)


def test_what_may_be_the_beginning_of_a_stop_is_held_back_until_it_is_none(tokenizers: list[Tokenizer]) -> None:
    byte = tokenizers[2]
    assert streamed(byte, byte.encode("a\nb\n\nc"), ["\n\n"]) == ["a", "", "\nb", "", "", "", ""]
    assert streamed(byte, byte.encode("a\n"), ["\n\n"]) == ["a", "", "\n"]


def test_a_stream_says_that_it_has_stopped(tokenizers: list[Tokenizer]) -> None:
    stream = TextStream(tokenizers[2], ["b"])
    assert (stream.add(tokenizers[2].encode("a")), stream.is_stopped) == ("a", False)
    assert (stream.add(tokenizers[2].encode("b")), stream.is_stopped) == ("", True)
    assert stream.add(tokenizers[2].encode("c")) == ""


@pytest.mark.parametrize(
    ("text", "stop", "heard"),
    [
        ("a well-known man", " known", False),
        ("a well-known man", "- ", False),
        ("a well-known man", "well-known", True),
        ("我吃了一个苹果。", "我吃", True),
        ("我吃了一个苹果。", "我 吃", False),
    ],
)
def test_a_stop_is_heard_in_words_as_they_are_written(text: str, stop: str, heard: bool) -> None:
    word = Tokenizer.train(TokenizerConfig(kind="word", min_freq=1), [text])
    assert word.decode(word.encode(text)) == text
    assert StopStrings(word, [stop])(word.encode(text)) == heard
