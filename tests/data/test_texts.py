"""One reading of many texts: what is dropped and why, which labels there are, what is held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clearhead.data.labelled import LabelledConfig, check_known, check_labels, open_labelled
from clearhead.data.reasons import Reason
from clearhead.data.texts import Survey, Texts, hold_out, kept_texts, listed, seen_before, survey
from clearhead.errors import ConfigError, DataError


def texts_in(folder: Path, *rows: str, header: str = "label\ttext", name: str = "a.tsv") -> Texts:
    path = folder / name
    path.write_text("".join(f"{row}\n" for row in (header, *rows)), encoding="utf-8", newline="\n")
    found = open_labelled(LabelledConfig(train=str(path)), "train")
    assert found is not None
    return found


def surveyed(texts: Texts, max_chars: int = 100, drop_duplicates: bool = True) -> Survey:
    return survey(texts, max_chars=max_chars, drop_duplicates=drop_duplicates)


def test_every_text_gets_its_verdict_and_its_place(tmp_path: Path) -> None:
    rows = ("pos\tgood", "neg\tbad", "pos\t ", "\tno label", "pos\tgood", "neg\tgood", "neg", "pos\t" + "x" * 101)
    found = surveyed(texts_in(tmp_path, *rows))
    assert [Reason(reason) for reason in found.reasons] == [
        Reason.KEPT, Reason.KEPT, Reason.EMPTY, Reason.EMPTY, Reason.DUPLICATE, Reason.KEPT, Reason.MISSING_COLUMN,
        Reason.TOO_LONG,
    ]  # fmt: skip
    assert found.names == ("neg", "pos") and found.counts() == {"neg": 2, "pos": 1}
    assert found.where(4) == f"{tmp_path / 'a.tsv'} line 6"
    report = found.report()
    assert report[0] == f"{tmp_path / 'a.tsv'}: 8 texts, 3 kept"
    assert f"dropped 2: empty, first in {tmp_path / 'a.tsv'} line 4" in report
    assert f"dropped 1: the same as an earlier one, first in {tmp_path / 'a.tsv'} line 6" in report
    assert "labels: neg 2, pos 1" in report
    assert "1 texts occur with more than one label" in report


def test_more_than_256_files_keep_their_places(tmp_path: Path) -> None:
    tables = [texts_in(tmp_path, f"pos\ttext {number}", name=f"{number}.tsv").tables[0] for number in range(260)]
    found = surveyed(Texts(tables, labelled=True, one_line=True))
    assert found.num_kept == 260
    assert found.where(258) == f"{tmp_path / '258.tsv'} line 2"


def test_kept_texts_come_back_whole_and_in_order(tmp_path: Path) -> None:
    found = surveyed(texts_in(tmp_path, "pos\t good ", "neg\t", "neg\tbad"))
    assert list(kept_texts(found)) == [(0, "good"), (2, "bad")]
    assert list(kept_texts(found, np.array([False, True, True]))) == [(2, "bad")]


def test_a_file_that_changes_meanwhile_is_noticed(tmp_path: Path) -> None:
    for rows in (("pos\tgood",), ("pos\tgood", "neg\tbad", "neg\tmore"), ("pos\t", "neg\tbad")):
        found = surveyed(texts_in(tmp_path, "pos\tgood", "neg\tbad"))
        texts_in(tmp_path, *rows)
        with pytest.raises(DataError, match="has changed since it was checked"):
            list(kept_texts(found))


def test_line_ends_inside_a_text_become_spaces(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,label\n"one\ntwo",pos\nthree,neg\n', encoding="utf-8")
    texts = open_labelled(LabelledConfig(train=str(tmp_path / "a.csv")), "train")
    assert texts is not None
    assert [text for _, text in kept_texts(surveyed(texts))] == ["one two", "three"]


def test_near_duplicates_are_held_out_together_and_the_order_does_not_matter(tmp_path: Path) -> None:
    rows = [f"{'pos' if number % 2 else 'neg'}\ttext {number // 2}{'!' if number % 2 else ''}" for number in range(80)]
    found = surveyed(texts_in(tmp_path, *rows))
    held = hold_out(found, 20, seed=1)
    assert held.sum() == 20
    assert bool((held[0::2] == held[1::2]).all())
    backward = hold_out(surveyed(texts_in(tmp_path, *reversed(rows))), 20, seed=1)
    assert np.array_equal(backward[::-1], held)
    assert not np.array_equal(hold_out(found, 20, seed=2), held)
    rest = hold_out(found, 20, seed=2, among=~held)
    assert not (rest & held).any()


def test_too_much_to_hold_out_is_told(tmp_path: Path) -> None:
    found = surveyed(texts_in(tmp_path, "pos\tgood", "neg\tbad"))
    with pytest.raises(DataError, match="cannot hold out 2 of 2 texts"):
        hold_out(found, 2, seed=1)


def test_texts_seen_in_training_are_counted(tmp_path: Path) -> None:
    trained = surveyed(texts_in(tmp_path, "pos\tgood", "neg\tbad"))
    held = surveyed(texts_in(tmp_path, "neg\tgood", "neg\tnew", name="b.tsv"))
    assert seen_before(trained, held) == 1


def test_nothing_usable_is_told_with_the_first_places(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no usable text in .*a.tsv: 2 × empty \(first in .*a.tsv line 2\)"):
        surveyed(texts_in(tmp_path, "pos\t", "neg\t"))


def test_one_class_only_and_too_many_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="all 3 texts have the label 'pos', and a classifier needs two"):
        check_labels(surveyed(texts_in(tmp_path, "pos\ta", "pos\tb", "pos\tc")))
    many = surveyed(texts_in(tmp_path, *(f"{number}\ttext {number}" for number in range(30))))
    with pytest.raises(DataError, match=r"has 30 different labels in 30 texts: is data.label the right column"):
        check_labels(many)
    check_labels(surveyed(texts_in(tmp_path, "pos\ta", "neg\tb")))


def test_a_label_nobody_was_taught_is_named_with_its_place(tmp_path: Path) -> None:
    found = surveyed(texts_in(tmp_path, "pos\ta", "so-so\tb", "neg\tc"))
    with pytest.raises(DataError, match=r"a.tsv line 3: nothing was trained on the label 'so-so'; .* are: neg, pos"):
        check_known(found, ("neg", "pos"))
    check_known(found, ("neg", "pos", "so-so"))


def test_missing_data_and_wrong_columns_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"set data\.train to a file or folder"):
        open_labelled(LabelledConfig(), "train")
    assert open_labelled(LabelledConfig(train="x"), "test") is None
    with pytest.raises(ConfigError, match=r"columns are counted from 1: data\.label = 0"):
        open_labelled(LabelledConfig(train="a.tsv", label=0, text=1), "train")
    with pytest.raises(ConfigError, match=r"what kind of file is a.parquet"):
        open_labelled(LabelledConfig(train="a.parquet"), "train")


def test_labels_are_listed_on_one_line() -> None:
    assert listed({str(number): number for number in range(12)}).endswith("8 8, 9 9, and 2 more")
