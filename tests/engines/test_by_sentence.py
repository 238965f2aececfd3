"""Texts are translated sentence by sentence: every text gets its own, in order, as soon as it is there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.engines.by_sentence import by_sentence
from clearhead.text.turns import next_turn

TEXTS = st.lists(st.text(st.sampled_from("ab .!?…\t\u2028。中"), max_size=12), max_size=8)


def shouted(sentences: Iterator[str | None]) -> Iterator[str]:
    return (sentence.upper() for sentence in sentences if sentence is not None)


def loud(texts: list[str | None], longest: int = 100) -> list[str]:
    return list(by_sentence(texts, shouted, len, longest))


def test_sentences_are_translated_one_by_one_and_put_together() -> None:
    asked: list[str] = []

    def counted(sentences: Iterator[str | None]) -> Iterator[str]:
        for sentence in sentences:
            asked.append(str(sentence))
            yield f"{len(str(sentence))}."

    assert list(by_sentence(["Ja. Nein, danke!", "我吃了。你呢？"], counted, len, 100)) == ["3. 12.", "4. 3."]
    assert asked == ["Ja.", "Nein, danke!", "我吃了。", "你呢？"]


@pytest.mark.parametrize("nothing", ["", " ", "… !", "\t"])
def test_what_says_nothing_is_not_translated_wherever_it_stands(nothing: str) -> None:
    kept = nothing.strip()
    assert loud([nothing, nothing, "a. b.", nothing, "c", nothing]) == [kept, kept, "A. B.", kept, "C", kept]
    assert loud([nothing]) == [kept]
    assert loud([]) == []


def test_a_sentence_that_is_too_long_is_cut() -> None:
    assert loud(["eins, zwei, drei, vier"], longest=12) == ["EINS, ZWEI, DREI, VIER"]


def test_a_text_is_given_out_before_the_next_one_is_read() -> None:
    read: list[str] = []

    def coming() -> Iterator[str]:
        for text in ("a. b.", "c."):
            read.append(text)
            yield text

    found = by_sentence(coming(), shouted, len, 100)
    assert next(found) == "A. B."
    assert read == ["a. b."]


def test_whoever_waits_for_an_empty_line_gets_it() -> None:
    asked: list[str] = []

    def one_at_a_time(sentences: Iterator[str | None]) -> Iterator[str]:
        while turn := next_turn(sentences, 10):
            asked.append("turn")
            yield from turn

    found = by_sentence(["", None, "… !", None, "a.", None], one_at_a_time, len, 100)
    assert [(next(found), len(asked)) for _ in range(3)] == [("", 1), ("… !", 2), ("a.", 3)]


def test_pauses_are_passed_on() -> None:
    heard: list[str | None] = []

    def listening(sentences: Iterator[str | None]) -> Iterator[str]:
        for sentence in sentences:
            heard.append(sentence)
            if sentence is not None:
                yield sentence

    assert list(by_sentence(["a.", None, "b."], listening, len, 100)) == ["a.", "b."]
    assert heard == ["a.", None, "b."]


@given(TEXTS)
def test_one_line_in_is_one_line_out_and_nothing_else_is_changed(texts: list[str]) -> None:
    found = loud(list(texts))
    assert ["".join(text.split()) for text in found] == ["".join(text.upper().split()) for text in texts]
    assert all(len(text.splitlines()) <= 1 for text in found)
