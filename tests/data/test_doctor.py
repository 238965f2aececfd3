"""The doctor counts every pair once, keeps the good ones, and tells nobody more than it knows."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data import doctor
from clearhead.data.doctor import HOLD_OUT_SIDES, Checkup, check, hold_out, hold_out_test, kept_pairs
from clearhead.data.limits import Limits, judge
from clearhead.data.numbers import LANGUAGES
from clearhead.data.reasons import Reason
from clearhead.data.report import Dropped
from clearhead.data.sources import DataConfig, NumberWords, PairSource, Part, RawPair, TabSeparated
from clearhead.errors import ConfigError, DataError


@dataclass
class Listed:
    """A source that is a list, as small as a source can be."""

    raw: list[RawPair]
    name: str = "listed"
    parts: Sequence[Part] = ()

    @classmethod
    def of(cls, pairs: list[tuple[str, str]], name: str = "listed") -> Listed:
        return cls([RawPair(number, *pair) for number, pair in enumerate(pairs, start=1)], name)

    @classmethod
    def for_split(cls, config: DataConfig, split: str) -> Listed:
        raise NotImplementedError

    def pairs(self) -> Iterator[RawPair]:
        yield from self.raw

    def fingerprint(self) -> str:
        return self.name

    def notes(self) -> list[str]:
        return [f"{self.name} was noted"]

    def share_read(self) -> float:
        return 0.0


def kept(source: PairSource, limits: Limits | None = None) -> list[tuple[int, str, str]]:
    return list(kept_pairs(source, check(source, limits or Limits())))


def test_each_reason_is_counted_with_its_first_line() -> None:
    source = Listed(
        [
            RawPair(1, "eins", "one"),
            RawPair(2, " ", "two"),
            RawPair(3, "", "\u3000"),
            RawPair(4, "vier " * 20, "four"),
            RawPair(5, "lang " * 300, "long " * 300),
            RawPair(6, None, "x", Reason.BAD_ENCODING),
            RawPair(7, "x", None, Reason.CONTROL),
            RawPair(8, "eins", " one\r"),
            RawPair(9, "Berlin", "Berlin"),
            RawPair(10, None, None, Reason.MISSING_COLUMN),
            RawPair(11, "elf ", "eleven"),
            RawPair(12, None, None, Reason.BAD_ENCODING),
        ]
    )
    report = check(source, Limits()).report
    assert (report.total, report.kept) == (12, 2)
    assert report.dropped == {
        Reason.EMPTY: Dropped(2, 2),
        Reason.RATIO: Dropped(1, 4),
        Reason.TOO_LONG: Dropped(1, 5),
        Reason.BAD_ENCODING: Dropped(2, 6),
        Reason.CONTROL: Dropped(1, 7),
        Reason.DUPLICATE: Dropped(1, 8),
        Reason.IDENTICAL: Dropped(1, 9),
        Reason.MISSING_COLUMN: Dropped(1, 10),
    }
    assert kept(source) == [(1, "eins", "one"), (11, "elf", "eleven")]


words = st.text("ab 1", max_size=3)


@settings(deadline=None)
@given(st.lists(st.tuples(words, words), max_size=40))
def test_the_verdicts_equal_those_of_a_loop_with_a_set(pairs: list[tuple[str, str]]) -> None:
    seen: set[tuple[str, str]] = set()
    expected = []
    for number, (source, target) in enumerate(pairs, start=1):
        pair = source.strip(), target.strip()
        if judge(*pair, Limits()) is Reason.KEPT and pair not in seen:
            seen.add(pair)
            expected.append((number, *pair))
    listed = Listed.of(pairs)
    if expected:
        assert kept(listed) == expected
    else:
        with pytest.raises(DataError, match="no usable pair in listed"):
            check(listed, Limits())


def test_duplicates_need_both_sides_and_the_first_is_kept() -> None:
    pairs = [("a", "x"), ("a", "y"), ("b", "x"), ("a", "x"), ("b", "x"), ("a", "x")]
    assert [number for number, *_ in kept(Listed.of(pairs))] == [1, 2, 3]
    assert [number for number, *_ in kept(Listed.of(pairs), Limits(drop_duplicates=False))] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("languages", list(permutations(LANGUAGES, 2)), ids="-".join)
@pytest.mark.parametrize("largest", [999, 999_999_999])
def test_all_number_words_are_usable(languages: tuple[str, str], largest: int) -> None:
    report = check(NumberWords(languages, "train", 500, largest), Limits()).report
    assert report.kept == report.total == 500
    assert report.notes == ()


def test_number_words_do_not_leak() -> None:
    train, validation = (NumberWords(("de", "en"), split, 2_000, 99_999) for split in ("train", "validation"))
    leakage = check(train, Limits(), validation).report.leakage
    assert leakage is not None and leakage.validation_pairs == 2_000
    assert (leakage.same_source, leakage.same_target, leakage.same_pair) == (0, 0, 0)


def test_leakage_counts_source_target_and_both() -> None:
    train = Listed.of([("a", "x"), ("b", "y"), ("c", "z"), ("d", ""), ("a", "x")])
    validation = Listed.of([("a", "x"), ("a", "new"), ("b", "z"), ("q", "r"), ("d", "w"), ("", "x")], "held")
    checkup = check(train, Limits(), validation)
    leakage = checkup.report.leakage
    assert leakage is not None and checkup.validation is not None
    assert (leakage.validation_name, leakage.validation_pairs) == ("held", 5)
    assert (leakage.same_source, leakage.same_target, leakage.same_pair) == (3, 2, 1)
    assert [number for number, *_ in kept_pairs(validation, checkup.validation)] == [1, 2, 3, 4, 5]
    assert checkup.report.notes == ("listed was noted", "held was noted")


def test_lengths_equal_those_counted_by_hand() -> None:
    sizes = [1, 5, 6, 10, 11, 60, 900]
    lengths = check(Listed.of([("ä" * n, "我" * n) for n in sizes]), Limits()).report.source_lengths
    assert (lengths.shortest, lengths.median, lengths.longest, lengths.p95) == (1, 10, 900, 900)
    assert lengths.mean == pytest.approx(sum(sizes) / 7, abs=0.01)
    assert [(bucket.low, bucket.high, bucket.count) for bucket in lengths.histogram] == [
        *[(1, 5, 2), (6, 10, 2), (11, 20, 1), (21, 50, 0), (51, 100, 1), (101, 200, 0), (201, 500, 0), (501, 1000, 1)]
    ]


def test_very_long_texts_fall_into_the_open_bucket() -> None:
    report = check(Listed.of([("x" * 6_000, "y" * 5_000)]), Limits(max_chars=10_000)).report
    assert report.source_lengths.histogram[-1].label == "over 5,000"
    assert report.target_lengths.histogram[-1].label == "2,001–5,000"


def test_if_nothing_is_kept_the_reasons_are_told() -> None:
    with pytest.raises(DataError) as caught:
        check(Listed.of([("", "a"), ("b", " "), ("c", "c")]), Limits())
    assert str(caught.value) == (
        "no usable pair in listed: 2 × empty side (one side or both hold nothing but whitespace; first at line 1),"
        " 1 × identical sides (source and target are the same text, and it has letters; first at line 3)"
    )
    with pytest.raises(DataError, match="no usable pair in listed: it has none"):
        check(Listed([]), Limits())
    with pytest.raises(DataError, match="no usable pair in held"):
        check(Listed.of([("a", "b")]), Limits(), Listed.of([("", "")], "held"))


def test_a_silent_shift_of_one_side_is_noted() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.lognormal(3.5, 0.5, 1_000).astype(int) + 5
    source = ["x" * size for size in sizes]
    target = ["y" * size for size in sizes]
    del target[400]
    target.append("y" * 30)
    limits = Limits(drop_duplicates=False)
    notes = check(Listed.of(list(zip(source, target, strict=True))), limits).report.notes
    assert notes[1] == ("the two sides seem shifted from around line 401 on: source 402 fits target 401")
    assert len(check(Listed.of([(text, text[1:] + "y") for text in source]), limits).report.notes) == 1


def test_a_changed_source_is_noticed() -> None:
    pairs = [("a", "x"), ("b", "y"), ("c", "z")]
    checkup = check(Listed.of(pairs), Limits())
    for changed in (pairs[:2], [*pairs, ("d", "w")]):
        with pytest.raises(DataError, match="listed has changed since it was checked: it had 3 pairs then"):
            list(kept_pairs(Listed.of(changed), checkup))
    broken = [*Listed.of(pairs).raw[:2], RawPair(3, None, "z", Reason.BAD_ENCODING)]
    with pytest.raises(DataError, match="listed has changed since it was checked: line 3 is no longer usable"):
        list(kept_pairs(Listed(broken), checkup))


def test_progress_is_told_and_ends_with_the_total() -> None:
    told: list[int] = []
    check(Listed.of([(f"a{n}", f"b{n}") for n in range(25_000)]), Limits(), progress=told.append)
    assert told == [10_000, 20_000, 25_000]


def test_memory_is_a_few_bytes_a_pair() -> None:
    class Endless(Listed):
        def pairs(self) -> Iterator[RawPair]:
            return (
                RawPair(n, f"ein ziemlich langer Satz {n}", f"a rather long sentence {n}") for n in range(1, 30_001)
            )

    check(Listed.of([("a", "b")]), Limits())
    tracemalloc.start()
    try:
        check(Endless([]), Limits())
        assert tracemalloc.get_traced_memory()[1] / 30_000 < 100
    finally:
        tracemalloc.stop()


@pytest.fixture
def thrifty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a few pairs are worth storing."""
    monkeypatch.setattr(doctor, "WORTH_STORING", 5)


class Unread(Listed):
    """A source that nobody may read."""

    def pairs(self) -> Iterator[RawPair]:
        raise AssertionError("read again")


@pytest.mark.usefixtures("thrifty")
def test_what_was_found_is_taken_from_the_disk_the_next_time(tmp_path: Path) -> None:
    pairs = [("a", "x"), ("b", "y"), ("a", "x"), ("", "z"), ("c", "c"), ("d", "w")]
    plain = check(Listed.of(pairs), Limits())
    first = check(Listed.of(pairs), Limits(), cache=tmp_path)
    again = check(Unread([]), Limits(), cache=tmp_path)
    for found in (first, again):
        assert found.report == plain.report
        for name in ("reasons", "source_hashes", "target_hashes"):
            assert np.array_equal(getattr(found, name), getattr(plain, name))
    assert np.array_equal(hold_out(again, 1), hold_out(plain, 1))
    assert list(kept_pairs(Listed.of(pairs), again)) == [(1, "a", "x"), (2, "b", "y"), (6, "d", "w")]


@pytest.mark.usefixtures("thrifty")
def test_other_content_or_limits_or_damage_are_read_anew(tmp_path: Path) -> None:
    pairs = [(f"a{n}", f"b{n}") for n in range(9)]
    check(Listed.of(pairs), Limits(), cache=tmp_path)
    for source, limits in ((Unread([], "other"), Limits()), (Unread([]), Limits(drop_duplicates=False))):
        with pytest.raises(AssertionError, match="read again"):
            check(source, limits, cache=tmp_path)
    (folder,) = tmp_path.iterdir()
    (folder / "reasons.bin").write_bytes(bytes([1] * 9))
    assert check(Listed.of(pairs), Limits(), cache=tmp_path).report.kept == 9
    assert check(Unread([]), Limits(), cache=tmp_path).report.kept == 9


@pytest.mark.usefixtures("thrifty")
def test_notes_name_the_files_that_are_read_and_not_copies_of_them(tmp_path: Path) -> None:
    for name in ("old.tsv", "new.tsv"):
        (tmp_path / name).write_bytes(b"".join(b"a%d\tb%d\r\n" % (n, n) for n in range(9)))
        (note,) = check(TabSeparated(tmp_path / name), Limits(), cache=tmp_path / "cache").report.notes
        assert note.startswith(f"{tmp_path / name}: CRLF")


def test_few_pairs_are_not_worth_storing(tmp_path: Path) -> None:
    check(Listed.of([("a", "x")]), Limits(), cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_report_is_plain_json_and_plain_words() -> None:
    train = Listed.of([("eins", "one"), ("zwei", "two"), ("", "x"), ("drei", "three")])
    report = check(train, Limits(), Listed.of([("eins", "one")], "held")).report
    tree = report.as_json()
    assert json.loads(json.dumps(tree)) == tree
    assert tree["dropped"] == {"empty side": {"count": 1, "first_line": 3}}
    assert tree["leakage"]["same_pair"] == 1
    assert report.lines() == [
        "listed: 4 pairs, 3 kept (75.0 %)",
        "dropped 1: empty side, first at line 3",
        "source characters: shortest 4, median 4, mean 4, 95 % up to 4, longest 4",
        "target characters: shortest 3, median 3, mean 3.67, 95 % up to 5, longest 5",
        "validation: 1 of 1 pairs in held also occur in training (source text seen: 1; target text seen: 1)",
        "listed was noted",
        "held was noted",
    ]
    assert replace(report, total=100_000, kept=99_999).kept_percent == 99.9


@pytest.fixture(scope="module")
def checkup() -> Checkup:
    return check(Listed.of([(f"s{n // 3}", f"t{n % 50} {n % 7}") for n in range(600)]), Limits())


def texts_by(side: str, checkup: Checkup, mask: np.ndarray) -> tuple[set[int], set[int]]:
    hashes = HOLD_OUT_SIDES[side](checkup)
    return set(hashes[mask].tolist()), set(hashes[checkup.kept & ~mask].tolist())


@pytest.mark.parametrize("by", HOLD_OUT_SIDES)
@pytest.mark.parametrize("seed", [0, 1, 12345678901234567890])
def test_no_text_is_on_both_sides_of_a_hold_out(checkup: Checkup, by: str, seed: int) -> None:
    mask = hold_out(checkup, 60, seed, by)
    held, trained = texts_by(by, checkup, mask)
    assert held and trained and not held & trained
    assert 55 <= mask.sum() <= 60
    assert not (mask & ~checkup.kept).any()


def test_a_hold_out_is_repeatable_and_follows_the_seed(checkup: Checkup) -> None:
    assert np.array_equal(hold_out(checkup, 60, 1), hold_out(checkup, 60, 1))
    assert not np.array_equal(hold_out(checkup, 60, 1), hold_out(checkup, 60, 2))


def test_a_hold_out_depends_on_texts_not_on_their_order() -> None:
    pairs = [(f"s{n}", f"t{n}") for n in range(100)]
    chosen = []
    for order in (pairs, pairs[::-1]):
        mask = hold_out(check(Listed.of(order), Limits()), 20)
        chosen.append({pair for pair, is_held in zip(order, mask, strict=True) if is_held})
    assert chosen[0] == chosen[1] and len(chosen[0]) == 20


@pytest.mark.parametrize(("amount", "expected"), [(None, 30), (3, 3), (597, 597)])
def test_the_amount_is_a_count_or_a_twentieth(checkup: Checkup, amount: int | None, expected: int) -> None:
    assert hold_out(checkup, amount).sum() == expected


def test_dropped_pairs_are_never_held_out() -> None:
    checkup = check(Listed.of([("", ""), ("a", "b"), ("a", "b"), ("c", "d"), ("e", "")]), Limits())
    assert hold_out(checkup, 1).sum() == 1
    assert not hold_out(checkup, 1)[[0, 2, 4]].any()


def test_with_a_share_each_text_is_chosen_by_itself_and_more_data_move_none_of_it() -> None:
    pairs = [(f"s{n}", f"t{n}") for n in range(2000)]
    few, many = (hold_out(check(Listed.of(pairs[:size]), Limits()), 0.1, seed=3) for size in (1000, 2000))
    assert np.array_equal(many[:1000], few)
    assert 150 < many.sum() < 250


@pytest.mark.parametrize(("share", "how_many"), [(1e-9, "none"), (0.999_999_999, "all")])
def test_a_share_that_leaves_one_side_empty_is_refused(checkup: Checkup, share: float, how_many: str) -> None:
    with pytest.raises(DataError, match=rf"of 600 pairs: that is {how_many} of them; give a count"):
        hold_out(checkup, share)


def test_near_duplicates_are_held_out_together() -> None:
    forms = ("Stop it {}!", "stop it, {}.", "STOP IT {}", "“Stop it”  {}…")
    pairs = [(f"s{n} {place}", form.format(n)) for n in range(200) for place, form in enumerate(forms)]
    mask = hold_out(check(Listed.of(pairs), Limits()), 0.2, by="target")
    groups = mask.reshape(-1, len(forms))
    assert (groups.all(axis=1) == groups.any(axis=1)).all()
    assert mask.any()


def test_no_seed_lets_a_test_pair_into_training_or_validation() -> None:
    checkup = check(Listed.of([(f"s{n}", f"t{n}") for n in range(1000)]), Limits())
    tested = hold_out_test(checkup, 0.1)
    for seed in range(5):
        held = hold_out(checkup, 0.1, seed, among=~tested)
        assert held.any() and not (held & tested).any()


@pytest.mark.parametrize("amount", [0, 600, 1.5])
def test_an_impossible_amount_is_refused(checkup: Checkup, amount: float) -> None:
    with pytest.raises(DataError, match=r"cannot hold out [\d,]+ of 600 pairs: some must be left on both sides"):
        hold_out(checkup, amount)


def test_a_text_too_frequent_to_be_held_out_is_left_in_training() -> None:
    often = [("same", f"t{n}") for n in range(50)]
    checkup = check(Listed.of([*often, ("rare", "x"), ("seldom", "y")]), Limits())
    assert np.flatnonzero(hold_out(checkup, 2)).tolist() == [50, 51]
    with pytest.raises(DataError, match="cannot hold out 10 of 50 pairs: there are too few different source texts"):
        hold_out(check(Listed.of(often), Limits()), 10)


def test_an_unknown_side_is_refused(checkup: Checkup) -> None:
    with pytest.raises(ConfigError, match="unknown side to hold out by 'both': choose from: source, target"):
        hold_out(checkup, 5, by="both")
    assert set(HOLD_OUT_SIDES) == set(get_args(DataConfig.model_fields["hold_out_by"].annotation))


@pytest.mark.real_data("tatoeba")
def test_tatoeba_is_nearly_clean(real_data: Path) -> None:
    source = TabSeparated(real_data / "cmn.hans.txt.gz", (2, 1))
    report = check(source, Limits()).report
    assert report.total == 29_155
    assert set(report.dropped) == {Reason.DUPLICATE}
    assert report.notes == ()
