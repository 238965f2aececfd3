"""Named data sets: found where the user keeps them, or downloaded and checked; nothing half-fetched is ever taken."""

from __future__ import annotations

import errno
import gzip
import hashlib
import http.client
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from clearhead.data import sets
from clearhead.data.sets import SETS, NamedSet, SetFile, fetch, find_file, is_here, locate, set_file
from clearhead.data.sources import DataConfig, open_source
from clearhead.errors import ConfigError, StorageError, UnavailableError

TEXT = b"ein Satz\nnoch einer\n" * 1000


class Site(BaseHTTPRequestHandler):
    """Serves the text in several ways, some of them wrong; what was cut off can be gone on with."""

    cuts = 1
    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        answers = {"/plain": TEXT, "/packed": gzip.compress(TEXT), "/wrong": TEXT[:-1], "/broken": b"\x1f\x8bxx"}
        body = TEXT if self.path in ("/cut", "/cut-again", "/chunked") else answers.get(self.path)
        wanted = self.headers.get("Range")
        self.asked.append(wanted)
        if self.path == "/chunked" and type(self).cuts > 0:
            self.send_chunks_that_break_off()
            return
        begun = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.path == "/cut" else 0
        self.send_response(404 if body is None else 416 if begun >= len(body) > 0 else 206 if begun else 200)
        self.send_header("Content-Length", str(len(body or b"") - begun))
        self.end_headers()
        if body is not None:
            is_cut = self.path.startswith("/cut") and type(self).cuts > 0
            type(self).cuts -= is_cut
            self.wfile.write(body[begun : begun + len(body) // 3] if is_cut else body[begun:])

    def send_chunks_that_break_off(self) -> None:
        type(self).cuts -= 1
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        third = len(TEXT) // 3
        self.wfile.write(b"%x\r\n%b\r\n" % (third, TEXT[:third]) + b"%x\r\n%b" % (third, TEXT[third : third + 9]))

    def log_message(self, *arguments: object) -> None:
        """Stay quiet."""


@pytest.fixture
def site() -> Iterator[str]:
    Site.cuts, Site.asked = 1, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def nowhere(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No set is anywhere at the start of a test, unless it asks for a real one."""
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    if request.node.get_closest_marker("real_data") is None:
        monkeypatch.delenv("CLEARHEAD_DATA", raising=False)


def one_file_set(monkeypatch: pytest.MonkeyPatch, url: str | None) -> None:
    file = SetFile("a.de", hashlib.sha256(TEXT).hexdigest(), len(TEXT), url)
    monkeypatch.setitem(SETS, "mini", NamedSet("a set", "none", "here", (file,)))


@pytest.mark.parametrize("way", ["plain", "packed"])
def test_a_download_is_checked_and_found_again(site: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one_file_set(monkeypatch, f"{site}/{way}")
    heard: list[tuple[str, int, int | None]] = []
    folder = fetch("mini", lambda *told: heard.append(told))
    size = len(TEXT if way == "plain" else gzip.compress(TEXT))
    assert heard[-1] == ("a.de", size, size)
    assert folder == locate("mini")
    assert is_here("mini")
    assert sets.content_sum(set_file("mini", "a.de")) == hashlib.sha256(TEXT).hexdigest()
    assert fetch("mini") == folder


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("wrong", r"wrong SHA-256\): nothing was kept"),
        ("broken", r"wrong SHA-256\): nothing was kept"),
        ("absent", r"answered 404: put a\.de into"),
    ],
)
def test_a_bad_download_is_one_line_and_leaves_nothing(
    site: str, way: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_file_set(monkeypatch, f"{site}/{way}")
    with pytest.raises(UnavailableError, match=message):
        fetch("mini")
    assert not is_here("mini")
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(("way", "cuts"), [("cut", 1), ("cut", 2), ("cut-again", 1)])
def test_a_download_that_was_cut_goes_on_where_it_was(
    site: str, way: str, cuts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that knows no ranges sends all of it again, and nothing is doubled."""
    one_file_set(monkeypatch, f"{site}/{way}")
    Site.cuts = cuts
    third = len(TEXT) // 3
    for count in range(1, cuts + 1):
        with pytest.raises(
            UnavailableError, match=rf"cut off after {count * third:,} of {len(TEXT):,} bytes: try again"
        ):
            fetch("mini")
        assert not is_here("mini")
    folder = fetch("mini")
    assert Site.asked == [None, *(f"bytes={count * third}-" for count in range(1, cuts + 1))]
    assert (folder / "a.de").read_bytes() == TEXT
    assert [path.name for path in folder.iterdir()] == ["a.de"]


@pytest.mark.parametrize(
    "error", [OSError(errno.EHOSTUNREACH, "No route to host"), ssl.SSLError("record layer failure")]
)
def test_a_line_that_breaks_is_not_blamed_on_the_disk(
    error: OSError, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_file_set(monkeypatch, f"{site}/plain")
    read = http.client.HTTPResponse.read
    third = len(TEXT) // 3

    def breaks(answer: http.client.HTTPResponse, size: int | None = None) -> bytes:
        if size is not None and answer.length != len(TEXT):
            raise error
        return read(answer, third)

    with monkeypatch.context() as broken:
        broken.setattr(http.client.HTTPResponse, "read", breaks)
        with pytest.raises(UnavailableError, match=r"cannot download http://.*: .*; try again later, or put a\.de"):
            fetch("mini")
    assert (sets.places("mini")[-1] / "a.de.part").read_bytes() == TEXT[:third]


def test_what_is_cut_off_is_kept_where_no_length_was_told(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one_file_set(monkeypatch, f"{site}/chunked")
    third = len(TEXT) // 3
    with pytest.raises(UnavailableError, match=rf"/chunked was cut off after {third:,} bytes: try again, and it goes"):
        fetch("mini")
    assert (sets.places("mini")[-1] / "a.de.part").read_bytes() == TEXT[:third]
    assert (fetch("mini") / "a.de").read_bytes() == TEXT
    assert Site.asked == [None, f"bytes={third}-"]


def test_a_part_that_was_whole_is_only_checked(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one_file_set(monkeypatch, f"{site}/cut")
    part = sets.places("mini")[-1] / "a.de.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(TEXT)
    assert (fetch("mini") / "a.de").read_bytes() == TEXT
    assert Site.asked == [f"bytes={len(TEXT)}-"]


def test_two_processes_do_not_write_one_part(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    one_file_set(monkeypatch, f"{site}/plain")
    part = sets.places("mini")[-1] / "a.de.part"
    part.parent.mkdir(parents=True)
    with part.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UnavailableError, match=r"a\.de\.part is being written by another process"):
            fetch("mini")
        assert part.is_file()
    assert (fetch("mini") / "a.de").read_bytes() == TEXT


def test_no_network_says_where_to_put_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    one_file_set(monkeypatch, "http://127.0.0.1:9/none")
    with pytest.raises(UnavailableError, match=r"cannot download http://127.*or put a\.de into .*cache/sets/mini"):
        fetch("mini")


def test_a_file_without_an_address_must_be_put_there(monkeypatch: pytest.MonkeyPatch) -> None:
    one_file_set(monkeypatch, None)
    with pytest.raises(UnavailableError, match=r"a\.de of 'mini' cannot be downloaded: put it into"):
        fetch("mini")


def test_an_absent_set_names_its_files_and_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path / "mine"))
    with pytest.raises(
        UnavailableError, match=r"data fetch multi30k, or put train\.de, .* \(or \.gz\) into .*mine/multi30k"
    ):
        locate("multi30k")


@pytest.mark.parametrize("packed", [False, True])
def test_the_users_own_folder_comes_first(tmp_path: Path, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    one_file_set(monkeypatch, None)
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path / "mine"))
    folder = tmp_path / "mine" / "mini"
    folder.mkdir(parents=True)
    (folder / ("a.de.gz" if packed else "a.de")).write_bytes(gzip.compress(TEXT) if packed else TEXT)
    assert locate("mini") == folder == fetch("mini")
    assert find_file(folder, "a.de") == set_file("mini", "a.de.gz")


def test_a_file_of_another_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_file_set(monkeypatch, "http://127.0.0.1:9/none")
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    (tmp_path / "mini").mkdir()
    (tmp_path / "mini" / "a.de").write_bytes(b"something else")
    with pytest.raises(StorageError, match=r"a\.de is not the file it should be"):
        fetch("mini")


def test_a_file_of_another_size_is_refused_before_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    (tmp_path / "mini").mkdir()
    path = tmp_path / "mini" / "a.de"
    path.write_bytes(TEXT[:-1])
    one_file_set(monkeypatch, "http://127.0.0.1:9/none")
    sizes = rf"a\.de has {len(TEXT) - 1:,} bytes, and a\.de of 'mini' has {len(TEXT):,}"
    with pytest.raises(StorageError, match=f"{sizes}: remove it, and then clearhead data fetch mini"):
        set_file("mini", "a.de")
    assert not is_here("mini")
    for right in (TEXT, gzip.compress(TEXT), gzip.compress(TEXT[:-1])):
        path.write_bytes(right)
        assert set_file("mini", "a.de") == path


def test_another_version_of_what_cannot_be_fetched_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    one_file_set(monkeypatch, None)
    (tmp_path / "mini").mkdir()
    (tmp_path / "mini" / "a.de").write_bytes(TEXT + b"newer\n")
    assert locate("mini") == tmp_path / "mini"


def test_a_misspelt_set_or_file_names_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ConfigError, match=r"unknown data set 'multi30', did you mean 'multi30k'|did you mean 'multi30k'"
    ):
        locate("multi30")
    one_file_set(monkeypatch, None)
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    (tmp_path / "mini").mkdir()
    (tmp_path / "mini" / "a.de").write_bytes(TEXT)
    with pytest.raises(ConfigError, match=r"unknown file of 'mini' 'b\.de'"):
        set_file("mini", "b.de")


@pytest.mark.parametrize("name", SETS)
def test_every_set_tells_its_licence_and_sums(name: str) -> None:
    entry = SETS[name]
    assert entry.licence
    assert entry.what
    assert all(len(file.sha256) == 64 and file.bytes > 0 for file in entry.files)


@pytest.mark.real_data("multi30k")
def test_the_real_set_has_the_sums_that_are_promised(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_DATA", str(real_data.parent))
    assert fetch("multi30k") == real_data
    config = DataConfig(kind="files", dataset="multi30k", source="val.de", target="val.en")
    source = open_source(config, "train")
    assert source is not None
    assert len(list(source.pairs())) == 1014


def test_another_version_of_what_cannot_be_fetched_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    (tmp_path / "tatoeba").mkdir()
    for file in SETS["tatoeba"].files:
        (tmp_path / "tatoeba" / file.name).write_bytes(b"Hi.\tHallo.\n")
    assert not SETS["tatoeba"].can_be_fetched
    assert fetch("tatoeba") == locate("tatoeba") == tmp_path / "tatoeba"
