"""The cache of tokenised corpora: what comes out equals what went in, and nothing half-written is ever trusted."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data import columns, corpus
from clearhead.data.corpus import Pair, TokenisedPairs, cache_key, cache_root, open_or_tokenise, tokenise
from clearhead.data.examples import where
from clearhead.errors import ClearheadError, DataError, MissingInputError, StorageError
from clearhead.text import TOKENIZERS, TokenizerConfig, TokenizerPair

BYTES = TokenizerPair.train(TokenizerConfig(kind="byte"), [], [])
PAIRS: list[Pair] = [
    (1, "ein Hund", "one dog"),
    (3, "我吃了一个苹果。", "I ate an apple."),
    (4, "", "nothing"),
    (9, "zwei", "two </s>"),
]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    tokenise(PAIRS, BYTES, tmp_path / "corpus", max_len=100)
    return tmp_path / "corpus"


def as_lists(pairs: TokenisedPairs) -> list[tuple[int, list[int], list[int]]]:
    return [
        (int(pairs.line_numbers[row]), pairs.source(row).tolist(), pairs.target(row).tolist())
        for row in range(len(pairs))
    ]


def expected(pairs: list[Pair], tokenizers: TokenizerPair) -> list[tuple[int, list[int], list[int]]]:
    return [(line, tokenizers.source.encode(s), tokenizers.target.encode(t)) for line, s, t in pairs]


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_every_pair_comes_back_as_its_tokenizers_encode_it(kind: str, joint: bool, tmp_path: Path) -> None:
    config = TokenizerConfig(kind=kind, vocab_size=270, min_freq=1, joint=joint)
    tokenizers = TokenizerPair.train(config, [s for _, s, _ in PAIRS], [t for _, _, t in PAIRS])
    pairs = tokenise(PAIRS, tokenizers, tmp_path / "corpus", max_len=100)
    assert as_lists(pairs) == expected(PAIRS, tokenizers)
    assert pairs.dropped_too_long == 0


@settings(max_examples=25, deadline=None)
@given(texts=st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=12), chunk=st.integers(1, 5))
def test_the_size_of_chunks_does_not_matter(
    texts: list[tuple[str, str]], chunk: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pairs = [(line, source, target) for line, (source, target) in enumerate(texts, start=1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "CHUNK", chunk)
        stored = tokenise(pairs, BYTES, tmp_path_factory.mktemp("cache") / "corpus", max_len=1000)
    assert as_lists(stored) == expected(pairs, BYTES)


def test_lengths_count_tokens_without_control_tokens(stored: Path) -> None:
    pairs = TokenisedPairs.open(stored)
    assert pairs.source_lengths.tolist() == [8, 24, 0, 4]
    assert pairs.target_lengths.tolist() == [7, 15, 7, 8]
    assert pairs.source_lengths.dtype == pairs.target_lengths.dtype == np.int32


def test_a_reopened_corpus_is_identical_and_memory_mapped(stored: Path) -> None:
    pairs = TokenisedPairs.open(stored)
    assert as_lists(pairs) == expected(PAIRS, BYTES)
    for array in (pairs.source(0), pairs.target(0), pairs.line_numbers):
        while not isinstance(array, np.memmap):
            assert isinstance(array.base, np.ndarray)
            array = array.base
        assert not array.flags.writeable


def test_ids_take_two_bytes_if_the_vocabulary_allows(tmp_path: Path) -> None:
    many = " ".join(f"w{number}" for number in range(70_000))
    config = TokenizerConfig(kind="word", min_freq=1, joint=False)
    tokenizers = TokenizerPair.train(config, ["few words"], [many])
    pairs = tokenise([(1, "few", "w69999")], tokenizers, tmp_path / "corpus", max_len=9)
    assert (pairs.source(0).dtype, pairs.target(0).dtype) == (np.uint16, np.uint32)
    assert tokenizers.target.decode(pairs.target(0)) == "w69999"


def test_pairs_too_long_for_the_model_are_dropped_and_counted(tmp_path: Path) -> None:
    pairs = [(1, "abcd", "x"), (2, "abcde", "x"), (3, "x", "abcde"), (4, "x", "abcd")]
    stored = tokenise(pairs, BYTES, tmp_path / "corpus", max_len=5)
    assert stored.line_numbers.tolist() == [1, 4]
    assert stored.dropped_too_long == TokenisedPairs.open(tmp_path / "corpus").dropped_too_long == 2
    assert max(stored.source_lengths.max(), stored.target_lengths.max()) + 1 == 5


def test_a_corpus_may_be_empty(tmp_path: Path) -> None:
    assert len(tokenise([], BYTES, tmp_path / "corpus", max_len=5)) == 0
    assert as_lists(TokenisedPairs.open(tmp_path / "corpus")) == []


def test_progress_hears_how_many_pairs_were_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "CHUNK", 2)
    heard: list[int] = []
    tokenise([*PAIRS, (10, "x" * 200, "")], BYTES, tmp_path / "corpus", max_len=100, progress=heard.append)
    assert heard == [2, 4, 5]


@pytest.mark.parametrize("workers", [1, 2])
def test_copies_right_after_a_pair_are_not_counted_as_read(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "CHUNK", 2)
    pairs = [(1, "a", "b"), (1, "A", "b"), (1, "a.", "b"), (3, "x" * 200, ""), (3, "y" * 200, ""), (4, "c", "d")]
    heard: list[int] = []
    stored = tokenise(pairs, BYTES, tmp_path / "corpus", max_len=100, workers=workers, progress=heard.append)
    assert heard == [1, 2, 3]
    assert stored.line_numbers.tolist() == [1, 1, 1, 4]


def test_tokenising_holds_a_chunk_not_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "CHUNK", 100)
    peaks = []
    for size in (1_000, 8_000):
        pairs = ((line + 1, f"some words of line {line % 50}", "and others") for line in range(size))
        tracemalloc.start()
        try:
            tokenise(pairs, BYTES, tmp_path / str(size), max_len=100)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    # The lengths of all sentences, when it is opened: 24 bytes a pair.
    assert peaks[1] - peaks[0] < 40 * 7_000


def test_a_subset_is_a_view_in_the_order_asked_for(stored: Path) -> None:
    pairs = TokenisedPairs.open(stored)
    some = pairs.subset(np.array([3, 1]))
    assert as_lists(some) == [as_lists(pairs)[3], as_lists(pairs)[1]]
    assert some.source_lengths.tolist() == [4, 24]
    assert np.shares_memory(some.source(1), pairs.source(1))
    assert as_lists(some.subset(np.array([1]))) == [as_lists(pairs)[1]]


def test_a_pair_knows_its_number_in_the_users_data(stored: Path) -> None:
    pairs = TokenisedPairs.open(stored).subset(np.array([2, 0]))
    assert [where(pairs, row) for row in range(2)] == [f"pair {PAIRS[2][0]}", f"pair {PAIRS[0][0]}"]


def test_a_lone_surrogate_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^line 7: text has a lone surrogate U\+D800 \(character 2, after 'a'\)"):
        tokenise([(1, "x", "y"), (7, "x", "a\ud800")], BYTES, tmp_path / "corpus", max_len=9)


# The cache.


class Counted:
    """A corpus that counts how often it is read."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Iterator[Pair]:
        self.times += 1
        return iter(PAIRS)


def test_the_second_opening_does_not_read_the_corpus(tmp_path: Path) -> None:
    reader = Counted()
    first = open_or_tokenise("content", reader, BYTES, max_len=100, root=tmp_path)
    second = open_or_tokenise("content", reader, BYTES, max_len=100, root=tmp_path)
    assert reader.times == 1
    assert as_lists(first) == as_lists(second) == expected(PAIRS, BYTES)


def test_other_content_tokenizer_or_length_is_another_entry(tmp_path: Path) -> None:
    reader = Counted()
    chars = TokenizerPair.train(TokenizerConfig(kind="char"), ["ab"], ["ab"])
    open_or_tokenise("content", reader, BYTES, max_len=100, root=tmp_path)
    open_or_tokenise("other", reader, BYTES, max_len=100, root=tmp_path)
    open_or_tokenise("content", reader, chars, max_len=100, root=tmp_path)
    assert len(open_or_tokenise("content", reader, BYTES, max_len=9, root=tmp_path)) == 3
    assert reader.times == len(list(tmp_path.iterdir())) == 4


@given(st.lists(st.text(max_size=3), max_size=3), st.lists(st.text(max_size=3), max_size=3))
def test_keys_are_equal_only_if_all_parts_are(one: list[str], other: list[str]) -> None:
    assert (cache_key(*one) == cache_key(*other)) == (one == other)


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLEARHEAD_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_root() == tmp_path / ".cache" / "clearhead"
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_root() == Path("/somewhere/clearhead")
    monkeypatch.setenv("CLEARHEAD_CACHE", "~/mine")
    assert cache_root() == tmp_path / "mine"
    open_or_tokenise("content", lambda: PAIRS, BYTES, max_len=100)
    assert len(list((tmp_path / "mine").iterdir())) == 1


def test_without_a_home_folder_one_line_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HOME", "CLEARHEAD_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(StorageError, match="this user has no home folder: set CLEARHEAD_CACHE"):
        cache_root()
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.delenv("CLEARHEAD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "clearhead"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


FILES = ["source_ids.bin", "source_offsets.bin", "target_ids.bin", "target_offsets.bin", "line_numbers.bin"]


@pytest.mark.parametrize("harm", [cut, grow, flip, Path.unlink])
@pytest.mark.parametrize("name", FILES)
def test_damage_to_any_file_is_noticed_and_repaired(harm: Callable[[Path], None], name: str, tmp_path: Path) -> None:
    reader = Counted()
    open_or_tokenise("content", reader, BYTES, max_len=100, root=tmp_path)
    (entry,) = tmp_path.iterdir()
    harm(entry / name)
    with pytest.raises(ClearheadError, match=name):
        TokenisedPairs.open(entry)
    again = open_or_tokenise("content", reader, BYTES, max_len=100, root=tmp_path)
    assert reader.times == 2
    assert as_lists(again) == expected(PAIRS, BYTES)
    assert list(tmp_path.iterdir()) == [entry]


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b"{}", b'{"format_version": 2, "columns": 3}', b"\xff"])
def test_a_damaged_description_is_noticed_and_repaired(junk: bytes, tmp_path: Path) -> None:
    open_or_tokenise("content", lambda: PAIRS, BYTES, max_len=100, root=tmp_path)
    (entry,) = tmp_path.iterdir()
    (entry / "meta.json").write_bytes(junk)
    with pytest.raises(StorageError, match=r"meta.json is damaged: it does not describe the columns$"):
        TokenisedPairs.open(entry)
    assert as_lists(open_or_tokenise("content", lambda: PAIRS, BYTES, max_len=100, root=tmp_path))


def test_damage_is_described_in_one_line(stored: Path) -> None:
    cut(stored / "source_ids.bin")
    with pytest.raises(StorageError, match=r"source_ids.bin is damaged: it has 71 bytes, not 72$"):
        TokenisedPairs.open(stored)
    (stored / "source_ids.bin").write_bytes(b"\0" * 72)
    with pytest.raises(StorageError, match=r"source_ids.bin is damaged: its SHA-256 is wrong$"):
        TokenisedPairs.open(stored)
    meta = json.loads((stored / "meta.json").read_text())
    (stored / "meta.json").write_text(json.dumps({**meta, "format_version": 99}))
    with pytest.raises(StorageError, match=r"corpus has format_version 99, not 2$"):
        TokenisedPairs.open(stored)


def test_a_corpus_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"absent/meta.json is missing$"):
        TokenisedPairs.open(tmp_path / "absent")


def test_an_unreadable_corpus_says_why(tmp_path: Path) -> None:
    (tmp_path / "corpus" / "meta.json").mkdir(parents=True)
    with pytest.raises(StorageError, match=r"cannot read .*meta.json: Is a directory$"):
        TokenisedPairs.open(tmp_path / "corpus")


# Being interrupted.


def test_an_error_while_reading_leaves_nothing_behind(tmp_path: Path) -> None:
    def broken() -> Iterator[Pair]:
        yield PAIRS[0]
        raise OSError(errno.EIO, "the input broke")

    with pytest.raises(OSError, match="the input broke"):
        tokenise(broken(), BYTES, tmp_path / "corpus", max_len=100)
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from clearhead.data import corpus
from clearhead.text import TokenizerConfig, TokenizerPair

corpus.CHUNK = 10
tokenizers = TokenizerPair.train(TokenizerConfig(kind="byte"), [], [])

def pairs():
    for line in range(1000):
        if line == 500:
            os.kill(os.getpid(), signal.SIGKILL)
        yield line + 1, "source", "target"

corpus.tokenise(pairs(), tokenizers, Path(sys.argv[1]), max_len=100)
"""


def test_a_kill_in_the_middle_leaves_no_corpus_and_the_next_run_builds_one(tmp_path: Path) -> None:
    directory = tmp_path / "corpus"
    run = subprocess.run([sys.executable, "-c", KILLED, str(directory)])
    assert run.returncode == -signal.SIGKILL
    (leftover,) = tmp_path.iterdir()
    assert leftover.name.startswith("corpus.tmp-")
    with pytest.raises(MissingInputError):
        TokenisedPairs.open(directory)

    tokenise(PAIRS, BYTES, directory, max_len=100)
    assert as_lists(TokenisedPairs.open(directory)) == expected(PAIRS, BYTES)
    assert leftover.exists(), "it might belong to a process that still works on it"


def test_what_a_killed_process_left_is_removed_when_it_is_old(tmp_path: Path) -> None:
    for name, age in (("corpus.tmp-1-aa", 7200), ("corpus.tmp-2-bb", 60), ("other.tmp-3-cc", 7200)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "source_ids.bin").touch()
        for path in (tmp_path / name / "source_ids.bin", tmp_path / name):
            then = path.stat().st_mtime - age
            os.utime(path, (then, then))
    tokenise(PAIRS, BYTES, tmp_path / "corpus", max_len=100)
    assert {path.name for path in tmp_path.iterdir()} == {"corpus", "corpus.tmp-2-bb", "other.tmp-3-cc"}


def test_the_slower_of_two_builders_opens_what_the_faster_one_made(tmp_path: Path) -> None:
    directory = tmp_path / "corpus"

    def overtaken() -> Iterator[Pair]:
        yield PAIRS[0]
        tokenise(PAIRS, BYTES, directory, max_len=100)
        yield PAIRS[1]

    assert as_lists(tokenise(overtaken(), BYTES, directory, max_len=100)) == expected(PAIRS, BYTES)
    assert list(tmp_path.iterdir()) == [directory]


class FullDisk(io.BytesIO):
    """A file on a disk that takes nothing more."""

    def write(self, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_one_clear_line_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = Path.open

    def nearly_full(path: Path, *arguments: Any, **keywords: Any) -> Any:
        return FullDisk() if path.name == "target_ids.bin" else real_open(path, *arguments, **keywords)

    monkeypatch.setattr(Path, "open", nearly_full)
    with pytest.raises(StorageError, match=r"^cannot write .*corpus: the disk is full; make room, or set CLEAR"):
        tokenise(PAIRS * 5000, BYTES, tmp_path / "corpus", max_len=100)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        StorageError, match=r"cannot write .*: File exists; set CLEARHEAD_CACHE to a folder that can be"
    ):
        open_or_tokenise("content", lambda: PAIRS, BYTES, max_len=100, root=tmp_path / "file")


def test_a_failed_rename_is_not_taken_for_a_lost_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, name: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StorageError, match="Permission denied"):
        tokenise(PAIRS, BYTES, tmp_path / "corpus", max_len=100)
    assert list(tmp_path.iterdir()) == []


def test_the_format_is_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_or_tokenise("content", lambda: PAIRS, BYTES, max_len=100, root=tmp_path)
    monkeypatch.setattr(columns, "FORMAT_VERSION", 99)
    open_or_tokenise("content", lambda: PAIRS, BYTES, max_len=100, root=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
