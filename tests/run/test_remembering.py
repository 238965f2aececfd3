"""Answers that outlive a stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.errors import UnavailableError
from clearhead.run.remembering import Answers, identity


def test_answers_are_there_again_until_they_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    with Answers(path) as answers:
        answers.add("a", "狗", "dog\n")
        answers.add("b", "狗", "chien")
    with Answers(path) as answers:
        assert answers.by("a") == {"狗": "dog\n"} and answers.by("b") == {"狗": "chien"} and len(answers) == 2
        answers.forget()
    assert not path.exists()


@pytest.mark.parametrize(
    "torn", [b'["a", "two', b'["a", "two", "zwei"]', b'{}\n["a", "two", "zwei"]\n', b"\xff\n", b"[]\n"]
)
def test_what_is_torn_is_asked_again(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "answers"
    with Answers(path) as answers:
        answers.add("a", "one", "eins")
    with path.open("ab") as file:
        file.write(torn)
    with Answers(path) as answers:
        assert answers.by("a") == {"one": "eins"}
        answers.add("a", "three", "drei")
    with Answers(path) as answers:
        assert answers.by("a") == {"one": "eins", "three": "drei"}


def test_no_answer_leaves_no_file_and_two_writers_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    with Answers(path), pytest.raises(UnavailableError, match="by another process"):
        Answers(path)
    assert not path.exists()


def test_another_model_or_beam_is_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("1")
    before = identity(tmp_path, 5)
    assert identity(tmp_path, 5) == before != identity(tmp_path, 4)
    (tmp_path / "weights").write_text("12")
    assert identity(tmp_path, 5) != before
