"""The published archive of reviews becomes the tables that recipes read; what else is in it goes nowhere."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from clearhead.data import imdb
from clearhead.data.sets import SETS, Archive, NamedSet, SetFile, fetch, is_here
from clearhead.errors import DataError, StorageError, UnavailableError

REVIEWS = {
    "train/pos/0_9": "Good.<br />Très bon.",
    "train/neg/10_1": "Bad\tand\nworse.",
    "train/neg/2_3": "Not good.\x85Not bad.",
    "test/pos/0_10": "See it.",
    "test/neg/0_2": "Leave it.",
    "train/unsup/1_0": "Perhaps.",
    "train/unsup/0_0": "Who knows.",
}
TABLES = {
    "train.tsv": "neg\t3\t2\tNot good.\x85Not bad.\nneg\t1\t10\tBad and worse.\npos\t9\t0\tGood.<br />Très bon.\n",
    "test.tsv": "neg\t2\t0\tLeave it.\npos\t10\t0\tSee it.\n",
    "unsup.tsv": "unsup\t0\t0\tWho knows.\nunsup\t0\t1\tPerhaps.\n",
}


def add(tar: tarfile.TarFile, name: str, content: bytes = b"") -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def archive(path: Path, more: dict[str, bytes] | None = None) -> Path:
    """A tiny archive in the published layout, with what must not be taken for a review."""
    with tarfile.open(path, "w:gz") as tar:
        add(tar, "aclImdb/README", b"read me")
        add(tar, "aclImdb/train/labeledBow.feat", b"1:2")
        add(tar, "../../aclImdb/train/pos/5_9.txt", b"escaped")
        add(tar, "/aclImdb/train/pos/6_9.txt", b"escaped")
        link = tarfile.TarInfo("aclImdb/train/pos/7_9.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        for name, text in REVIEWS.items():
            add(tar, f"aclImdb/{name}.txt", text.encode())
        for name, content in (more or {}).items():
            add(tar, name, content)
    return path


def content_of(table: str) -> bytes:
    return b"label\trating\tid\ttext\n" + TABLES[table].encode()


def known_set(monkeypatch: pytest.MonkeyPatch, packed: Path, **other: str) -> None:
    """The set of the tiny archive, to be had where it lies."""
    sums = {name: hashlib.sha256(content_of(name)).hexdigest() for name in TABLES} | other
    known = Archive(
        "aclImdb_v1.tar.gz",
        hashlib.sha256(packed.read_bytes()).hexdigest(),
        packed.stat().st_size,
        packed.as_uri(),
        imdb.tables,
    )
    files = tuple(SetFile(name, sums[name], len(content_of(name))) for name in TABLES)
    monkeypatch.setitem(SETS, "imdb", NamedSet("reviews", "none", "here", files, known))


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CLEARHEAD_DATA", raising=False)


def test_the_archive_becomes_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known_set(monkeypatch, archive(tmp_path / "published.tar.gz"))
    heard: list[tuple[str, int, int | None]] = []
    assert not is_here("imdb")
    folder = fetch("imdb", lambda *told: heard.append(told))
    assert is_here("imdb")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {name: content_of(name) for name in TABLES}
    assert {name for name, _, _ in heard} == {"aclImdb_v1.tar.gz", "unpacking aclImdb_v1.tar.gz"}
    assert all(done <= (total or 0) for _, done, total in heard)
    assert not (tmp_path / "aclImdb").exists()


def test_an_archive_that_a_person_put_there_is_used_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published = archive(tmp_path / "published.tar.gz")
    known_set(monkeypatch, published)
    own = tmp_path / "mine" / "imdb"
    own.mkdir(parents=True)
    published.rename(own / "aclImdb_v1.tar.gz")
    with pytest.raises(UnavailableError, match=r"or put aclImdb_v1\.tar\.gz into .*cache/sets/imdb"):
        fetch("imdb")
    monkeypatch.setenv("CLEARHEAD_DATA", str(own.parent))
    folder = fetch("imdb")
    assert (folder / "train.tsv").read_bytes() == content_of("train.tsv")
    assert [path.name for path in own.iterdir()] == ["aclImdb_v1.tar.gz"]


def test_a_table_that_differs_is_not_kept_and_the_archive_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known_set(monkeypatch, archive(tmp_path / "published.tar.gz"), **{"test.tsv": "0" * 64})
    with pytest.raises(StorageError, match=r"does not hold the test\.tsv it should"):
        fetch("imdb")
    assert not is_here("imdb")
    assert not any(path.name.startswith("test.tsv") for path in (tmp_path / "cache" / "sets" / "imdb").iterdir())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("aclImdb/train/pos/0_8.txt", b"again", r"two reviews train/pos/0: fetch it again"),
        (
            "aclImdb/train/pos/1_8.txt",
            b"x" * (imdb.MOST_BYTES + 1),
            r"larger than it should be at aclImdb/train/pos/1_8",
        ),
    ],
)
def test_an_odd_archive_is_one_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(imdb.tables(archive(tmp_path / "a.tar.gz", {name: content}), lambda done: None))


def test_a_cut_archive_is_one_line(tmp_path: Path) -> None:
    whole = archive(tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "b.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"b\.tar\.gz cannot be unpacked: .*; remove it and fetch again"):
        list(imdb.tables(tmp_path / "b.tar.gz", lambda done: None))
