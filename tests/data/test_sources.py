"""Every kind of source gives aligned pairs, again and again."""

from __future__ import annotations

import gzip
from itertools import permutations
from pathlib import Path
from typing import Any, get_args

import pytest

from clearhead.config import build, describe
from clearhead.data.doctor import check, kept_pairs
from clearhead.data.limits import Limits
from clearhead.data.number_split import Split
from clearhead.data.numbers import LANGUAGES, read
from clearhead.data.reasons import Reason
from clearhead.data.sources import (
    SOURCES,
    AlignedFiles,
    DataConfig,
    NumberWords,
    PairSource,
    RawPair,
    TabSeparated,
    open_source,
)
from clearhead.errors import ConfigError, DataError, MissingInputError

SPLITS: tuple[Split, ...] = get_args(Split)


def file(tmp_path: Path, name: str, content: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def settings(kind: str, tmp_path: Path) -> dict[str, Any]:
    """Valid settings for all three splits of any kind."""
    if kind == "parts":
        files = [str(file(tmp_path, name, f"a{name}\tb\nc\td{name}\n")) for name in ("one.txt", "two.txt")]
        return {"kind": kind, "parts": [{"tsv": files[0]}, {"tsv": files[1], "columns": [2, 1], "repeat": 2}]}
    if kind == "numbers":
        return {"kind": kind, "train_size": 50, "validation_size": 20, "test_size": 20}
    tree: dict[str, Any] = {"kind": kind}
    for prefix in ("", "validation_", "test_"):
        if kind == "tsv":
            tree[f"{prefix}tsv"] = str(file(tmp_path, f"{prefix}tsv", f"a{prefix}\tb\nc\td\n"))
        else:
            tree[f"{prefix}source"] = str(file(tmp_path, f"{prefix}s", f"a{prefix}\nc\n"))
            tree[f"{prefix}target"] = str(file(tmp_path, f"{prefix}t", "b\nd\n"))
    return tree


# Parts have no files of their own for other splits: pairs are held out of them.
GIVEN = [(kind, split) for kind in SOURCES for split in SPLITS if kind != "parts" or split == "train"]


@pytest.fixture(params=GIVEN, ids="-".join)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> PairSource:
    kind, split = request.param
    opened = open_source(build(DataConfig, settings(kind, tmp_path), "test"), split)
    assert opened is not None
    return opened


def test_a_source_can_be_read_again(source: PairSource) -> None:
    pairs = list(source.pairs())
    assert pairs == list(source.pairs())
    assert [pair.number for pair in pairs] == list(range(1, len(pairs) + 1))
    assert all(pair.source and pair.target and pair.reason is Reason.KEPT for pair in pairs)


def test_a_source_has_a_name_a_steady_fingerprint_and_nothing_to_note(source: PairSource) -> None:
    assert source.name
    assert source.fingerprint() == source.fingerprint()
    assert len(source.fingerprint()) == 64
    assert source.notes() == []


@pytest.mark.parametrize("kind", SOURCES)
def test_splits_have_different_fingerprints(kind: str, tmp_path: Path) -> None:
    config = build(DataConfig, settings(kind, tmp_path), "test")
    sources = [open_source(config, split) for split in SPLITS]
    given = [split for name, split in GIVEN if name == kind]
    assert len({source.fingerprint() for source in sources if source}) == len(given)


def test_two_files_are_paired_by_line(tmp_path: Path) -> None:
    pairs = AlignedFiles(file(tmp_path, "s", "a\nb\n"), file(tmp_path, "t.gz", gzip.compress(b"A\nB"))).pairs()
    assert list(pairs) == [RawPair(1, "a", "A"), RawPair(2, "b", "B")]


def test_a_bad_line_costs_its_pair_only(tmp_path: Path) -> None:
    source = file(tmp_path, "s", b"a\nb\xff\nc\0\nd\ne\xff\n")
    target = file(tmp_path, "t", b"A\nB\nC\nD\xff\nE\0\n")
    assert list(AlignedFiles(source, target).pairs()) == [
        RawPair(1, "a", "A"),
        RawPair(2, None, "B", Reason.BAD_ENCODING),
        RawPair(3, None, "C", Reason.CONTROL),
        RawPair(4, "d", None, Reason.BAD_ENCODING),
        RawPair(5, None, None, Reason.BAD_ENCODING),
    ]


@pytest.mark.parametrize(("source", "target"), [("a\nb\nc\n", "A\nB\n"), ("a\nb\n", "A\nB\nC\n")])
def test_unequal_files_are_refused_with_both_counts(tmp_path: Path, source: str, target: str) -> None:
    paths = file(tmp_path, "s", source), file(tmp_path, "t", target)
    counts = [f"{path} has {text.count(chr(10))}" for path, text in zip(paths, (source, target), strict=True)]
    with pytest.raises(DataError) as caught:
        list(AlignedFiles(*paths).pairs())
    assert str(caught.value).startswith(f"{counts[0]} lines but {counts[1]}: ")
    assert "line 2" in str(caught.value)


def test_notes_tell_what_was_repaired_in_which_file(tmp_path: Path) -> None:
    source = AlignedFiles(file(tmp_path, "s", b"\xef\xbb\xbfa\n"), file(tmp_path, "t", b"A\r\n"))
    assert list(source.pairs()) == [RawPair(1, "a", "A")]
    assert [note.split(": ")[0] for note in source.notes()] == [str(tmp_path / "s"), str(tmp_path / "t")]


def test_tsv_columns_are_chosen_and_others_ignored(tmp_path: Path) -> None:
    path = file(tmp_path, "x.tsv", "id\tA\tnote\ta\textra\n7\tB\t\tb\n")
    assert list(TabSeparated(path, (4, 2)).pairs()) == [RawPair(1, "a", "A"), RawPair(2, "b", "B")]


def test_a_row_with_too_few_columns_is_a_counted_drop(tmp_path: Path) -> None:
    path = file(tmp_path, "x.tsv", b"a\tA\nb\n\nc\tC\xff\nd\tD\t!\n\tE\n")
    assert list(TabSeparated(path).pairs()) == [
        RawPair(1, "a", "A"),
        RawPair(2, None, None, Reason.MISSING_COLUMN),
        RawPair(3, None, None, Reason.EMPTY),
        RawPair(4, None, None, Reason.BAD_ENCODING),
        RawPair(5, "d", "D"),
        RawPair(6, "", "E"),
    ]


def test_fingerprints_follow_content_and_columns(tmp_path: Path) -> None:
    one, two = file(tmp_path, "1", "a\tb\n"), file(tmp_path, "2", "a\tc\n")
    same = file(tmp_path, "3", "a\tb\n")
    assert TabSeparated(one).fingerprint() == TabSeparated(same).fingerprint()
    prints = {TabSeparated(one).fingerprint(), TabSeparated(two).fingerprint(), TabSeparated(one, (2, 1)).fingerprint()}
    prints |= {AlignedFiles(one, two).fingerprint(), AlignedFiles(two, one).fingerprint()}
    assert len(prints) == 5


@pytest.mark.parametrize("languages", list(permutations(LANGUAGES, 2)), ids="-".join)
def test_number_words_agree_in_every_direction(languages: tuple[str, str]) -> None:
    source = NumberWords(languages, "test", 300, 999_999_999)
    found = [(read(pair.source or "", languages[0]), read(pair.target or "", languages[1])) for pair in source.pairs()]
    assert found == [(number, number) for number in source.numbers()]
    assert len(found) == 300


def test_number_words_keep_their_splits_apart_in_every_direction() -> None:
    seen: dict[int, str] = {}
    for split in SPLITS:
        for languages in permutations(LANGUAGES, 2):
            for number in NumberWords(languages, split, 2_000, 99_999).numbers():
                assert seen.setdefault(number, split) == split


def test_number_words_are_german_to_english_unless_told() -> None:
    source = open_source(DataConfig(kind="numbers"), "train")
    assert source is not None and source.name == "number words de → en (train)"


def test_number_words_refuse_what_they_cannot_spell() -> None:
    with pytest.raises(ConfigError, match="unknown number language 'fr'"):
        open_source(DataConfig(kind="numbers", source_language="fr"), "train")
    with pytest.raises(ConfigError, match="number words need two languages, not 'en' twice: choose from de, en, zh"):
        open_source(DataConfig(kind="numbers", source_language="en"), "train")


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("kind", ["files", "tsv"])
def test_a_split_that_is_not_given_is_none(kind: str, split: Split) -> None:
    assert open_source(DataConfig(kind=kind), split) is None


@pytest.mark.parametrize(("kind", "wanted"), [("files", "data.source and data.target"), ("tsv", "data.tsv")])
def test_training_data_must_be_given(kind: str, wanted: str) -> None:
    with pytest.raises(ConfigError, match=f"no training data: set {wanted}"):
        open_source(DataConfig(kind=kind), "train")


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(("given", "absent"), [("source", "target"), ("target", "source")])
def test_half_a_pair_of_files_is_refused(split: Split, given: str, absent: str) -> None:
    prefix = "" if split == "train" else f"{split}_"
    config = DataConfig.model_validate({f"{prefix}{given}": "x.de"})
    with pytest.raises(ConfigError, match=f"data.{prefix}{given} is x.de, but data.{prefix}{absent} is missing"):
        open_source(config, split)


def test_missing_files_show_when_reading(tmp_path: Path) -> None:
    source = AlignedFiles(tmp_path / "s", tmp_path / "t")
    for attempt in (lambda: list(source.pairs()), source.fingerprint):
        with pytest.raises(MissingInputError, match=f"there is no file {tmp_path}/s"):
            attempt()


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"kind": "fils"}, "'kind' = 'fils': unknown kind of data, did you mean 'files'"),
        ({"kind": "tsv", "source": "a"}, "'source' belongs to kind 'files', but the kind is 'tsv'"),
        ({"tsv": "a"}, "'tsv' belongs to kind 'tsv', but the kind is 'files'"),
        ({"kind": "numbers", "validation_target": "a"}, "'validation_target' belongs to kind 'files'"),
        ({"kind": "tsv", "columns": [1]}, "columns are two different numbers from 1"),
        ({"kind": "tsv", "columns": [0, 1]}, "columns are two different numbers from 1"),
        ({"kind": "tsv", "columns": [2, 2]}, "columns are two different numbers from 1"),
        ({"parts": [{"tsv": "a"}]}, "'parts' belongs to kind 'parts', but the kind is 'files'"),
        ({"kind": "parts", "tsv": "a"}, "'tsv' belongs to kind 'tsv', but the kind is 'parts'"),
        ({"kind": "parts", "parts": [{"tsv": "a"}, {"tvs": "b"}]}, "'parts.1.tvs', did you mean 'parts.1.tsv'"),
        ({"kind": "parts", "parts": [{"columns": [1, 2]}]}, "'parts.0.tsv' is missing"),
        ({"kind": "parts", "parts": [{"tsv": "a", "repeat": 0}]}, "'parts.0.repeat' = 0"),
        ({"kind": "parts", "parts": [{"tsv": "a", "columns": [2, 2]}]}, "'parts.0.columns' = [2, 2]: columns are two"),
        ({"augment": {"bear": 0.1}}, "unknown key 'augment.bear', did you mean 'augment.bare'"),
        ({"augment": {"bare": 2.0}}, "'augment.bare' = 2.0"),
        ({"largest": 10}, "'largest' = 10"),
        ({"hold_out": 0}, "'hold_out"),
        ({"hold_out_by": "both"}, "'hold_out_by' = 'both'"),
        ({"limits": {"max_char": 3}}, "unknown key 'limits.max_char', did you mean 'limits.max_chars'"),
    ],
)
def test_wrong_settings_are_explained(tree: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(DataConfig, tree, "config.toml")
    assert message in str(caught.value)


def joined(tmp_path: Path) -> DataConfig:
    """A German file with the target first, and a Chinese one with a third column, each with something wrong."""
    file(tmp_path, "de.txt", "one\teins\ntwo\nthree\tdrei\n")
    file(tmp_path, "zh.hans.txt", "one\t一\t#1\nfour\t四\t#2\n\t五\t#3\n")
    parts = [
        {"tsv": str(tmp_path / "de.txt"), "columns": [2, 1], "language": "de"},
        {"tsv": str(tmp_path / "zh.hans.txt"), "columns": [2, 1], "repeat": 3},
    ]
    return build(DataConfig, {"kind": "parts", "parts": parts}, "test")


def test_parts_are_read_one_after_the_other_and_numbered_through(tmp_path: Path) -> None:
    source = open_source(joined(tmp_path), "train")
    assert source is not None
    assert list(source.pairs()) == [
        RawPair(1, "eins", "one", part=0),
        RawPair(2, None, None, Reason.MISSING_COLUMN, part=0),
        RawPair(3, "drei", "three", part=0),
        RawPair(4, "一", "one", part=1),
        RawPair(5, "四", "four", part=1),
        RawPair(6, "五", "", part=1),
    ]
    assert [part.name for part in source.parts] == ["de", "zh"]
    assert source.name == f"{tmp_path / 'de.txt'} + {tmp_path / 'zh.hans.txt'}"


def test_messages_name_the_file_and_its_own_line(tmp_path: Path) -> None:
    source = open_source(joined(tmp_path), "train")
    assert source is not None
    checkup = check(source, Limits())
    one, other = tmp_path / "de.txt", tmp_path / "zh.hans.txt"
    assert [str(checkup.place(number)) for number in (1, 3, 4, 6)] == [
        f"{one} line 1", f"{one} line 3", f"{other} line 1", f"{other} line 3",
    ]  # fmt: skip
    lines = checkup.report.lines()
    assert f"of these {one}: 3 pairs, 2 kept" in lines
    assert f"dropped 1: missing column, first at {one} line 2" in lines
    assert f"dropped 1: empty side, first at {other} line 3" in lines
    assert checkup.report.as_json()["dropped"]["empty side"] == {"count": 1, "first_line": 3, "first_file": str(other)}
    file(tmp_path, "zh.hans.txt", "one\t一\t#1\nfour\n\t五\t#3\n")
    with pytest.raises(
        DataError, match=r"has changed since it was checked: .*zh\.hans\.txt line 2 is no longer usable"
    ):
        list(kept_pairs(source, checkup))


def test_the_same_parts_in_another_order_are_other_data(tmp_path: Path) -> None:
    config = joined(tmp_path)
    turned = config.model_copy(update={"parts": config.parts[::-1]})
    found = [open_source(one, "train") for one in (config, turned)]
    assert len({source.fingerprint() for source in found if source is not None}) == 2


def test_parts_that_are_none_are_missed() -> None:
    with pytest.raises(ConfigError, match=r"no training data: set data\.parts"):
        open_source(DataConfig(kind="parts"), "train")


def test_a_share_and_a_count_may_be_held_out() -> None:
    assert build(DataConfig, {"hold_out": 0.1}, "test").hold_out == 0.1
    assert build(DataConfig, {"hold_out": 100}, "test").hold_out == 100


def test_every_setting_is_documented() -> None:
    assert all(text for _, _, text in describe(DataConfig))
