"""The place where two parallel files part is found, and is not imagined where there is none."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from clearhead.data import alignment
from clearhead.data.alignment import Break, Lengths, explain_unequal, first_break, first_one_sided_blank, single_break
from clearhead.data.lines import TextFile

SHIFTS = (-3, -2, -1, 1, 2, 3)


def parallel(count: int, seed: int = 0) -> tuple[Lengths, Lengths]:
    """Line lengths as in real sentence pairs: log-normal, with a ratio that spreads by a fifth."""
    rng = np.random.default_rng(seed)
    source = rng.lognormal(3.9, 0.45, count)
    target = source * 0.9 * np.exp(0.2 * rng.standard_normal(count))
    return source.astype(np.int32), target.astype(np.int32)


@pytest.mark.parametrize("line", [1, 250, 1_000, 1_700])
@pytest.mark.parametrize("lost", [1, 2, 3])
@pytest.mark.parametrize("side", ["source", "target"])
def test_lost_lines_are_found_within_a_few_lines(line: int, lost: int, side: str) -> None:
    source, target = parallel(2_000)
    gap = slice(line - 1, line - 1 + lost)
    if side == "target":
        found = first_break(source, np.delete(target, gap), SHIFTS)
    else:
        found = first_break(np.delete(source, gap), target, SHIFTS)
    assert found is not None
    assert found.shift == (lost if side == "target" else -lost)
    assert abs(found.line - line) <= 8


def test_the_first_of_several_breaks_is_named() -> None:
    source, target = parallel(5_000)
    found = first_break(source, np.delete(target, [1_200, 3_000, 4_100]), SHIFTS)
    assert found is not None and abs(found.line - 1_201) <= 8


def test_a_break_is_found_across_the_border_of_two_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = parallel(3_000)
    expected = first_break(source, np.delete(target, 1_000), SHIFTS)
    for chunk in (333, 950, 1_000, 1_001):
        monkeypatch.setattr(alignment, "_CHUNK", chunk)
        found = first_break(source, np.delete(target, 1_000), SHIFTS)
        assert found is not None and expected is not None and abs(found.line - expected.line) <= 8


@pytest.mark.parametrize("seed", range(5))
def test_aligned_lengths_show_no_break(seed: int) -> None:
    source, target = parallel(5_000, seed)
    assert first_break(source, target, SHIFTS) is None
    assert single_break(source, target[:-700]) is None


@pytest.mark.parametrize("count", [0, 1, 50, 500])
def test_lengths_that_tell_nothing_show_no_break(count: int) -> None:
    same = np.full(count, 20, dtype=np.int32)
    assert first_break(same, same, SHIFTS) is None
    assert single_break(same, same[: count // 2]) is None


def test_sorted_lengths_show_no_break() -> None:
    source, target = parallel(5_000)
    order = np.argsort(target)
    assert first_break(source[order], target[order], SHIFTS) is None


def test_a_single_break_is_found_in_a_short_file() -> None:
    source = np.array([5, 80, 12, 33, 60, 7, 44, 21, 90, 15], dtype=np.int32)
    assert single_break(source, np.delete(source, 3)) == Break(line=4, shift=1)
    assert single_break(np.delete(source, 3), source) == Break(line=4, shift=-1)


def test_a_blank_on_one_side_is_found() -> None:
    source, target = np.array([3, 0, 5, 0, 4], dtype=np.int32), np.array([3, 0, 5, 6], dtype=np.int32)
    assert first_one_sided_blank(source, target) == 4
    assert first_one_sided_blank(source[:3], target[:3]) is None


def explanation(tmp_path: Path, source: str, target: str) -> str:
    (tmp_path / "s").write_text(source)
    (tmp_path / "t").write_text(target)
    return explain_unequal(TextFile(tmp_path / "s"), TextFile(tmp_path / "t")).replace(f"{tmp_path}/", "")


def test_unequal_files_are_explained(tmp_path: Path) -> None:
    lines = ["x" * length for length in (5, 80, 12, 33, 60, 7, 44, 21, 90, 15)]
    fewer = [line for place, line in enumerate(lines) if place != 3]
    assert explanation(tmp_path, "\n".join(lines), "\n".join(fewer)) == (
        "s has 10 lines but t has 9: they part around line 4, where t seems to lack a line"
    )
    assert explanation(tmp_path, "\n".join(fewer), "\n".join(lines)) == (
        "s has 9 lines but t has 10: they part around line 4, where s seems to lack a line"
    )
    assert explanation(tmp_path, "a\nb\nc\n", "a\n") == (
        "s has 3 lines but t has 1: no line stands out, so t may be cut short after line 1"
    )
    assert explanation(tmp_path, "a\n\nb\n", "a\nb\n") == (
        "s has 3 lines but t has 2: the first suspicious line is 2, which is blank in only one of them"
    )


@pytest.mark.real_data("multi30k")
def test_a_line_lost_from_real_captions_is_found(real_data: Path, tmp_path: Path) -> None:
    german, english = (gzip.decompress((real_data / f"train.{side}.gz").read_bytes()) for side in ("de", "en"))
    rows = english.split(b"\n")
    del rows[14_842]
    (tmp_path / "de").write_bytes(german)
    (tmp_path / "en").write_bytes(b"\n".join(rows))
    message = explain_unequal(TextFile(tmp_path / "de"), TextFile(tmp_path / "en"))
    line = int(message.split("around line ")[1].split(", where")[0].replace(",", ""))
    assert abs(line - 14_843) <= 8
    assert "29,000 lines" in message and "28,999" in message and message.endswith("en seems to lack a line")
