"""Oracles: sentences and the words a person would cut them into."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clearhead.text.words import joined_words, joiner_marks, spaces


def words(text: str) -> list[str]:
    return [word for word, _ in spaces().pre_tokenize_str(joiner_marks().normalize_str(text))]


SENTENCES = {
    "Two men, one dog.": "Two men ￭, one dog ￭.",
    "twenty-three": "twenty ￭-￭ three",
    "twenty - three": "twenty - three",
    "It isn't Tom's; they'll don’t.": "It is ￭n't Tom ￭'s ￭; they ￭'ll do ￭n’t ￭.",
    "O'Brien paid $3.50 at 10:30 (10%)...": "O'Brien paid $￭ 3.50 at 10:30 (￭ 10 ￭% ￭) ￭...",
    'He said "hi".': 'He said "￭ hi ￭" ￭.',
    "the dogs' tails": "the dogs ￭' tails",
    "Zwei Männer im T-Shirt grüßen.": "Zwei Männer im T ￭-￭ Shirt grüßen ￭.",
    "„Wie geht's?“, z.B. so – sagte er.": "„￭ Wie geht ￭'s ￭? ￭“ ￭, z ￭.￭ B ￭. so – sagte er ￭.",
    "1.000.000 Straßen": "1.000.000 Straßen",
    "我吃了一个苹果。": "我 吃 了 一 个 苹 果 。",
    "他说：“你好！”": "他 说 ： “ 你 好 ！ ”",
    "我用Python 3.11写代码，3月5日": "我 用 Python 3.11 写 代 码 ， 3 月 5 日",
    "こんにちは、世界": "こ ん に ち は 、 世 界",
    "</s> <unk>": "< ￭/￭ s ￭> <￭ unk ￭>",
    "I ❤️ 😀!": "I ❤️ 😀 ￭!",
    "": "",
}


@pytest.mark.parametrize("text", SENTENCES)
def test_a_sentence_is_cut_into_the_words_a_person_sees(text: str) -> None:
    assert words(text) == SENTENCES[text].split()


@pytest.mark.parametrize("text", SENTENCES)
def test_words_join_to_the_sentence_they_came_from(text: str) -> None:
    assert joined_words().decode(words(text)) == text


SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
WITHOUT_CHINESE = st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0x2E7F), max_size=40)


@given(WITHOUT_CHINESE)
@example("a.b..c...d 'e' f's ''g'' 1.2. ,3 -4 5- _6_ \u0301 x\u0301")
def test_all_but_the_width_of_spaces_survives_the_way_there_and_back(text: str) -> None:
    once = " ".join("".join(" " if character in SPACE else character for character in text).split(" ")).split(" ")
    assert joined_words().decode(words(text)) == " ".join(part for part in once if part)


def test_no_space_is_put_beside_chinese_characters() -> None:
    assert joined_words().decode(["我", "love", "你", "，", "Tom", "￭."]) == "我love你，Tom."


def test_joiners_that_lead_nowhere_leave_no_trace() -> None:
    assert joined_words().decode(["￭,", "a", "(￭", "￭)", "b", '"￭']) == ', a () b "'


def test_a_joiner_in_the_text_becomes_another_sign() -> None:
    assert joined_words().decode(words("a ￭ b￭")) == "a ■ b■"


@pytest.mark.real_data("multi30k")
@pytest.mark.parametrize("name", ["train.de.gz", "train.en.gz"])
def test_real_sentences_survive_the_way_there_and_back(real_data: Path, name: str) -> None:
    cut, mark, join = spaces(), joiner_marks(), joined_words()
    for line in gzip.decompress((real_data / name).read_bytes()).decode().split("\n")[:5000]:
        parts = [word for word, _ in cut.pre_tokenize_str(mark.normalize_str(line))]
        assert join.decode(parts) == " ".join(line.split())
