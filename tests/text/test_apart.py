"""Texts are taken apart and put together again, whatever is in them, and in no time."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clearhead.text.apart import take_apart


def count(text: str) -> int:
    return len(text) + 1


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Hallo. Wie geht es?", ["Hallo.", "Wie geht es?"]),
        ("Er sagte: „Komm!“ Dann ging er.", ["Er sagte: „Komm!“", "Dann ging er."]),
        ("„Komm!“ sagte er. »Nein!« Er blieb.", ["„Komm!“ sagte er.", "»Nein!«", "Er blieb."]),
        ("我……不知道。你呢……？他……！", ["我……不知道。", "你呢……？", "他……！"]),
        ("我想…… 我们走吧。", ["我想……", "我们走吧。"]),
        ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
        ("Am 3. Oktober kam Dr. Kurz, z. B. um 9 Uhr.", ["Am 3. Oktober kam Dr. Kurz, z. B. um 9 Uhr."]),
        ("Warte ... nein, komm!", ["Warte ... nein, komm!"]),
        ("我吃了。你呢？我不饿！", ["我吃了。", "你呢？", "我不饿！"]),
        ("他说：“好。”然后走了。", ["他说：“好。”", "然后走了。"]),
        ("a\nb\r\nc", ["a", "b", "c"]),
        ("version 3.11 is out", ["version 3.11 is out"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_sentences_end_where_a_reader_sees_it(text: str, sentences: list[str]) -> None:
    assert list(take_apart(text).sentences) == sentences


TEXTS = st.text(
    st.sampled_from("ab .!?…,;\n\r\t\"'。！？，、中文 1Ü") | st.characters(exclude_categories=["Cs"]), max_size=80
)


@given(TEXTS)
def test_what_stands_between_is_kept(text: str) -> None:
    taken = take_apart(text)
    assert "".join(gap + sentence for gap, sentence in zip(taken.between, [*taken.sentences, ""], strict=True)) == text
    assert all(sentence == sentence.strip() != "" for sentence in taken.sentences)
    assert not any(gap.strip() for gap in taken.between)


@given(TEXTS, st.integers(2, 20))
@example("ab:", 2)
def test_no_part_is_longer_than_a_model_can_read(text: str, longest: int) -> None:
    taken = take_apart(text, count, longest)
    assert all(count(part) <= max(longest, 2) for part in taken.sentences)
    assert "".join("".join(taken.sentences).split()) == "".join(text.split())


@given(TEXTS)
def test_the_same_sentences_put_together_differ_in_spaces_at_most(text: str) -> None:
    taken = take_apart(text)
    assert "".join(taken.together(taken.sentences).split()) == "".join(text.split())


def test_sentences_without_a_space_between_them_get_one_where_the_script_has_spaces() -> None:
    taken = take_apart("我吃了。你呢？")
    assert taken.together(["I ate.", "And you?"]) == "I ate. And you?"
    assert taken.together(["我吃了。", "你呢？"]) == "我吃了。你呢？"
    assert take_apart("Hi. You?").together(["你好。", "你呢？"]) == "你好。你呢？"


@pytest.mark.parametrize(
    "text", ["." * 5_000, "…" * 5_000, ". " * 2_500, "a" * 5_000, ", " * 2_500, "\"')" * 1_600, "!?" * 2_500]
)
def test_long_rows_of_signs_are_no_trouble(text: str) -> None:
    started = time.perf_counter()
    for _ in range(10):
        take_apart(text, count, 60)
    # Generous: what grows with the square of the length takes minutes.
    assert time.perf_counter() - started < 5
