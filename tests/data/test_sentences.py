"""Sentences by rule: nothing is lost, and the borders are where people put them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.sentences import sentences


@given(st.text(alphabet=st.sampled_from("aB. !?\n。！”“’ \t") | st.characters()))
def test_joined_together_they_are_the_document(document: str) -> None:
    found = sentences(document)
    assert "".join(found) == document
    assert all(found)
    assert len(found) <= 1 or all(sentence.strip() for sentence in found)


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        ("I saw it. I liked it!", ["I saw it.", " I liked it!"]),
        ("Is it good? Yes.", ["Is it good?", " Yes."]),
        ("Dr. No met Mr. Bond at 3.14 p.m. yesterday.", ["Dr. No met Mr. Bond at 3.14 p.m. yesterday."]),
        ("See J. R. R. Tolkien. He wrote.", ["See J. R. R. Tolkien.", " He wrote."]),
        ("“Go!” he said. “Now.” She went.", ["“Go!” he said.", " “Now.”", " She went."]),
        ("Wait... what? OK", ["Wait... what?", " OK"]),
        ("One line\nanother line", ["One line", "\nanother line"]),
        ("Das kostet z.B. Geld. Viel Geld.", ["Das kostet z.B. Geld.", " Viel Geld."]),
        ("电影很好。我喜欢！你呢？", ["电影很好。", "我喜欢！", "你呢？"]),
        ("他说：“走吧。”然后走了。", ["他说：“走吧。”", "然后走了。"]),
        ("No end", ["No end"]),
        ("", []),
    ],
)
def test_borders_are_where_people_put_them(document: str, wanted: list[str]) -> None:
    assert sentences(document) == wanted


@pytest.mark.parametrize(
    "document", ["." * 100_000 + "x", "." * 100_000 + "”x", "?" * 100_000, "\n" * 100_000], ids=range(4)
)
def test_a_long_run_of_marks_or_line_ends_takes_no_time(document: str) -> None:
    begun = time.process_time()
    assert sentences(document) == [document]
    assert time.process_time() - begun < 3
