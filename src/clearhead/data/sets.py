"""The name of a data set in, the folder that holds its files out: found in $CLEARHEAD_DATA, or downloaded and checked.

Sums are of the content, so a file may lie there plain or gzipped. Some sets are made from a published archive. A new
set is one entry in SETS.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from clearhead.data import imdb
from clearhead.data.corpus import cache_root
from clearhead.data.downloads import BLOCK, Progress, download
from clearhead.errors import StorageError, UnavailableError, choose
from clearhead.storage import DRAFT, clear, storage_error, sync

GZIP = b"\x1f\x8b"
Tables = Callable[[Path, Callable[[int], None]], Iterator[tuple[str, Iterable[bytes]]]]


@dataclass(frozen=True)
class SetFile:
    """One file of a set."""

    name: str
    sha256: str
    """Of its content, unpacked."""
    bytes: int
    url: str | None = None
    """Where it can be downloaded, plain or gzipped; None if only by hand."""


@dataclass(frozen=True)
class Archive:
    """What a set is published as, if that is not its files."""

    name: str
    sha256: str
    """Of the archive itself."""
    bytes: int
    url: str
    tables: Tables
    """What makes names and lines of the set's files of it, and tells how many bytes of it were read."""


@dataclass(frozen=True)
class NamedSet:
    """A data set that recipes can name."""

    what: str
    licence: str
    origin: str
    files: tuple[SetFile, ...]
    archive: Archive | None = None
    """What all its files are made from."""

    @property
    def can_be_fetched(self) -> bool:
        """Whether all of it can be downloaded."""
        return self.archive is not None or all(file.url for file in self.files)

    @property
    def bytes(self) -> int:
        """The size of all its files, unpacked."""
        return sum(file.bytes for file in self.files)


def find_file(folder: Path, name: str) -> Path | None:
    """A file of a set as it lies in a folder, plain or gzipped."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def places(name: str) -> list[Path]:
    """Where a set may lie: the user's own data folder first, then the download cache."""
    own = os.environ.get("CLEARHEAD_DATA")
    return [*([Path(own).expanduser() / name] if own else []), cache_root() / "sets" / name]


def locate(name: str) -> Path:
    """The folder that holds a whole set, or one line that says how to get it."""
    wanted = choose(SETS, name, "data set")
    for folder in places(name):
        if all(find_file(folder, file.name) for file in wanted.files):
            _check_sizes(folder, name)
            return folder
    files = ", ".join(file.name for file in wanted.files)
    how = f"clearhead data fetch {name}, or " if wanted.can_be_fetched else ""
    raise UnavailableError(f"the data set '{name}' is not here: {how}put {files} (or .gz) into {places(name)[0]}")


def set_file(name: str, file: str) -> Path:
    """One file of a set, plain or gzipped."""
    folder = locate(name)
    known = {entry.name: entry.name for entry in SETS[name].files}
    path = find_file(folder, choose(known, file.removesuffix(".gz"), f"file of '{name}'"))
    assert path is not None
    return path


def is_here(name: str) -> bool:
    """Whether a set can be used without a download."""
    try:
        return locate(name) is not None
    except (StorageError, UnavailableError):
        return False


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Download what is missing of a set into the cache; a file gets its name only when its sum is right."""
    wanted = choose(SETS, name, "data set")
    for folder in places(name):
        if all(find_file(folder, file.name) for file in wanted.files):
            # What cannot be fetched was put there by hand, perhaps in another version.
            for file in wanted.files if wanted.can_be_fetched else ():
                check(folder, file)
            return folder
    folder = places(name)[-1]
    if wanted.archive is not None:
        _unpack(_archive(name, wanted.archive, progress), folder, wanted, progress)
    for file in wanted.files:
        if find_file(folder, file.name) is None:
            _download(folder, file, name, progress)
        check(folder, file)
    return folder


def check(folder: Path, file: SetFile) -> None:
    """Compare a file with its sum."""
    path = find_file(folder, file.name)
    assert path is not None
    if content_sum(path) != file.sha256:
        raise StorageError(f"{path} is not the file it should be (wrong SHA-256): remove it and fetch again")


def _check_sizes(folder: Path, name: str) -> None:
    """Refuse a plain file of another size than it should have, which costs no reading as its sum would.

    What cannot be fetched was put there by hand, perhaps in another version, and is not compared.
    """
    for file in SETS[name].files if SETS[name].can_be_fetched else ():
        path = find_file(folder, file.name)
        assert path is not None
        try:
            size = path.stat().st_size
            is_right = size == file.bytes or is_packed(path)
        except OSError as error:
            raise storage_error(path, error) from None
        if not is_right:
            differ = f"{path} has {size:,} bytes, and {file.name} of '{name}' has {file.bytes:,}"
            raise StorageError(f"{differ}: remove it, and then clearhead data fetch {name}")


def content_sum(path: Path) -> str | None:
    """The SHA-256 of a file's content, unpacked; None if it cannot be unpacked."""
    digest = hashlib.sha256()
    try:
        with unpacked(path) as content:
            while block := content.read(BLOCK):
                digest.update(block)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return None
    return digest.hexdigest()


def unpacked(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """A file open for reading, unpacked if it is gzipped, whatever its name."""
    return gzip.open(path, "rb") if is_packed(path) else path.open("rb")


def is_packed(path: Path) -> bool:
    """Whether a file is gzipped, whatever its name."""
    with path.open("rb") as file:
        return file.read(2) == GZIP


def _download(folder: Path, file: SetFile, name: str, progress: Progress | None) -> None:
    if file.url is None:
        raise UnavailableError(f"{file.name} of '{name}' cannot be downloaded: put it into {places(name)[0]}")

    def name_of(part: Path) -> Path | None:
        if content_sum(part) != file.sha256:
            return None
        return folder / (f"{file.name}.gz" if is_packed(part) else file.name)

    by_hand = f"put {file.name} into {places(name)[0]}"
    download(file.url, folder / file.name, name_of, by_hand=by_hand, progress=progress)


def _archive(name: str, archive: Archive, progress: Progress | None) -> Path:
    """The archive of a set, as a person or a download put it there."""

    def is_right(path: Path) -> bool:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == archive.sha256

    for folder in places(name):
        path = folder / archive.name
        if path.is_file():
            if not is_right(path):
                raise StorageError(f"{path} is not the file it should be (wrong SHA-256): remove it and fetch again")
            return path
    final = places(name)[-1] / archive.name
    by_hand = f"put {archive.name} into {places(name)[0]}"
    return download(
        archive.url, final, lambda part: final if is_right(part) else None, by_hand=by_hand, progress=progress
    )


def _unpack(path: Path, folder: Path, wanted: NamedSet, progress: Progress | None) -> None:
    """Write the files of a set from its archive, which is removed afterwards if it was downloaded here."""
    archive = wanted.archive
    assert archive is not None
    sums = {file.name: file.sha256 for file in wanted.files}

    def tell(done: int) -> None:
        if progress is not None:
            progress(f"unpacking {path.name}", done, archive.bytes)

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, lines in archive.tables(path, tell):
            final = folder / name
            clear(final, DRAFT)
            draft = final.with_name(f"{name}{DRAFT}{os.getpid()}")
            with draft.open("wb") as out:
                out.writelines(lines)
            sync(draft)
            if content_sum(draft) != sums.get(name):
                draft.unlink()
                raise StorageError(f"{path} does not hold the {name} it should (wrong SHA-256): nothing of it was kept")
            draft.replace(final)
    except OSError as error:
        raise storage_error(folder, error) from None
    missing = [name for name in sums if find_file(folder, name) is None]
    if missing:
        raise StorageError(f"{path} does not hold {', '.join(missing)}: remove it and fetch again")
    if path.parent == folder:
        path.unlink()


_MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
_FASHION = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
_SHAKESPEARE = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"

SETS: dict[str, NamedSet] = {
    "multi30k": NamedSet(
        "German-English image captions: 29,000 to train, 1,014 to validate, 1,000 to test (test_2016_flickr)",
        "non-commercial research and education (see its README)",
        "github.com/multi30k/dataset, task 1, raw",
        tuple(
            SetFile(name, sha256, size, f"{_MULTI30K}{name}.gz")
            for name, sha256, size in (
                ("train.de", "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72", 2_110_398),
                ("train.en", "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6", 1_801_238),
                ("val.de", "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660", 75_981),
                ("val.en", "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227", 63_297),
                ("test_2016_flickr.de", "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16", 70_649),
                ("test_2016_flickr.en", "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182", 62_076),
            )
        ),
    ),
    "tatoeba": NamedSet(
        "English-German and English-Chinese sentence pairs: 169,813 and 29,155",
        "CC BY 2.0 (France), attribution: tatoeba.org",
        "tatoeba.org through manythings.org/anki (its current files are newer than these)",
        (
            SetFile("deu.txt", "a79c90b3cd3102decffa49cc00fb6f20023974f2ae5c4782515bebe133fcc07b", 12_316_220),
            SetFile("cmn.hans.txt", "9da1af87e3e61650aa38595e60baef3a4e3a18ed239a7ef4a764c0a87c7ddeff", 4_151_351),
        ),
    ),
    "imdb": NamedSet(
        "film reviews: 25,000 to train and 25,000 to test, each neg or pos, and 50,000 without a label",
        "none stated; cite Maas et al. 2011",
        "ai.stanford.edu/~amaas/data/sentiment, its files as rows of label, rating, id and text",
        (
            SetFile("train.tsv", "c352e588e2d7ee17d08cf4371d54a5dc4e6f85644f7835bb1963d9885efce57f", 33_440_356),
            SetFile("test.tsv", "8fe9a5b271464205ca3811b512af50d5bdd483d3a48f5b8ab6830a472671d690", 32_658_485),
            SetFile("unsup.tsv", "c29442611ea186a847be38fb652c45fcb856da7f8d2dd84501280c3fba4950fc", 67_245_705),
        ),
        Archive(
            "aclImdb_v1.tar.gz",
            "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
            84_125_825,
            "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
            imdb.tables,
        ),
    ),
    "tinyshakespeare": NamedSet(
        "40,000 lines of Shakespeare: 1,115,394 characters",
        "public domain text",
        "github.com/karpathy/char-rnn",
        (
            SetFile(
                "input.txt", "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed", 1_115_394, _SHAKESPEARE
            ),
        ),
    ),
    "fashion-mnist": NamedSet(
        "grey pictures of clothes, 28 x 28, of ten kinds: 60,000 to train and 10,000 to test",
        "MIT",
        "github.com/zalandoresearch/fashion-mnist",
        tuple(
            SetFile(name, sha256, size, f"{_FASHION}{name}.gz")
            for name, sha256, size in (
                (
                    "train-images-idx3-ubyte",
                    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                    47_040_016,
                ),
                ("train-labels-idx1-ubyte", "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9", 60_008),
                (
                    "t10k-images-idx3-ubyte",
                    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                    7_840_016,
                ),
                ("t10k-labels-idx1-ubyte", "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34", 10_008),
            )
        ),
    ),
}
