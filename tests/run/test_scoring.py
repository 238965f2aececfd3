"""The pairs a model is scored on: files that are given, or what was held out of its training data, found again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clearhead.config import to_toml
from clearhead.errors import ConfigError, DataError, UsageError
from clearhead.run.preparing import examine
from clearhead.run.scoring import ToScore, pairs_to_score, readable
from clearhead.run.settings import RunConfig, resolve


def model_on(tmp_path: Path, seed: int = 1, **data: Any) -> RunConfig:
    """What a model directory remembers of its training on two parts."""
    for name, word in (("deu", "satz"), ("cmn", "句子"), ("more", "wort")):
        rows = (f"Sentence {number}.\t{word} {number}.\n" for number in range(200))
        (tmp_path / f"{name}.txt").write_text("".join(rows), encoding="utf-8")
    parts = [
        {"tsv": str(tmp_path / f"{name}.txt"), "columns": [2, 1], "language": language}
        for name, language in (("deu", "de"), ("cmn", "zh"))
    ]
    tree = {"kind": "parts", "parts": parts, "target_language": "en", "hold_out_by": "target", "hold_out": 0.1, **data}
    config = resolve({"data": tree, "train": {"steps": 1, "seed": seed}})
    (tmp_path / "training_config.toml").write_text(to_toml(config), encoding="utf-8")
    return config


def held(tmp_path: Path, split: str, part: str | None = None) -> set[str]:
    pairs, language = pairs_to_score(tmp_path, None, None, None, split, None, part)
    assert language == "en"
    return {pair.source for pair in pairs}


def test_what_was_held_out_is_found_again(tmp_path: Path) -> None:
    config = model_on(tmp_path, seed=7, hold_out_test=0.1)
    examined = examine(config)
    test, validation = held(tmp_path, "test"), held(tmp_path, "validation")
    assert (len(test), len(validation)) == (examined.tested.sum(), examined.held_out.sum())
    assert test and validation and not test & validation
    assert not (test | validation) & set(examined.training_texts(0))


def test_a_part_is_scored_by_itself_by_language_or_file(tmp_path: Path) -> None:
    model_on(tmp_path, hold_out_test=0.1)
    everything, german, chinese = held(tmp_path, "test"), held(tmp_path, "test", "de"), held(tmp_path, "test", "cmn")
    assert german | chinese == everything
    assert all(text.startswith("satz") for text in german) and all(text.startswith("句子") for text in chinese)
    with pytest.raises(ConfigError, match="unknown part of the data 'dee': did you mean 'de"):
        held(tmp_path, "test", "dee")


def test_a_file_is_scored_alone_where_others_have_its_language(tmp_path: Path) -> None:
    files = (("deu", "de"), ("more", "de"), ("cmn", None))
    parts = [{"tsv": str(tmp_path / f"{name}.txt"), "columns": [2, 1], "language": code} for name, code in files]
    model_on(tmp_path, hold_out_test=0.1, parts=parts)
    german, deu, more = (held(tmp_path, "test", part) for part in ("de", "deu", "more"))
    assert deu | more == german and all(text.startswith("satz") for text in deu)
    assert more and all(text.startswith("wort") for text in more)
    assert all(text.startswith("句子") for text in held(tmp_path, "test", "cmn"))


def test_without_a_test_hold_out_there_is_no_test(tmp_path: Path) -> None:
    model_on(tmp_path)
    with pytest.raises(ConfigError, match="names no test data"):
        held(tmp_path, "test")


def test_a_part_needs_a_split(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--part is one of the parts of a --split"):
        pairs_to_score(tmp_path, tmp_path, tmp_path, None, None, None, "de")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"zw\xffei\ttwo", "a side is not valid UTF-8"),
        (b"zwei\tt\x00wo", "a side holds NUL or another character that is not text"),
        (b"zwei", "the row has too few tab-separated columns"),
    ],
)
def test_a_pair_that_cannot_be_read_is_named_and_not_left_out(tmp_path: Path, row: bytes, reason: str) -> None:
    tsv = tmp_path / "test.tsv"
    tsv.write_bytes(b"eins\tone\n" + row + b"\ndrei\tthree\n")
    with pytest.raises(DataError, match=f"test.tsv line 2 cannot be scored: {reason}"):
        pairs_to_score(tmp_path, None, None, tsv, None, None)
    sides = row.split(b"\t")
    if len(sides) == 2:
        source, target = tmp_path / "test.de", tmp_path / "test.en"
        source.write_bytes(b"eins\n" + sides[0] + b"\n")
        target.write_bytes(b"one\n" + sides[1] + b"\n")
        with pytest.raises(DataError, match=rf"test.de \+ .*test.en line 2 cannot be scored: {reason}"):
            pairs_to_score(tmp_path, source, target, None, None, None)


def test_blank_rows_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_bytes(b"eins\tone\n\n \ndrei\tthree\n")
    pairs, _ = pairs_to_score(tmp_path, None, None, tmp_path / "test.tsv", None, None)
    assert [pair.source for pair in pairs] == ["eins", "drei"]


def test_a_table_is_read_by_the_columns_that_the_model_was_trained_with(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[data]\nkind = "tsv"\ntsv = "a.tsv"\ncolumns = [3, 1]\n', encoding="utf-8")
    (tmp_path / "test.tsv").write_bytes(b"one\tx\teins\n")
    pairs, _ = pairs_to_score(tmp_path, None, None, tmp_path / "test.tsv", None, None)
    assert [(pair.source, pair.reference) for pair in pairs] == [("eins", "one")]


def test_what_is_too_long_for_a_model_is_left_out_of_what_was_held_out() -> None:
    class Short:
        max_len = 5

        def count(self, text: str) -> int:
            return len(text) + 1

    pairs = [ToScore("four", "a long reference"), ToScore("fives", "x"), ToScore(" four ", "x")]
    assert readable(Short(), pairs) == [pairs[0], pairs[2]]  # type: ignore[arg-type]
