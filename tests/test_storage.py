"""Files safely on disk: a crash at any moment leaves the old or the new, and damage is never taken for content."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearhead import storage
from clearhead.errors import MissingInputError, StorageError, WouldOverwriteError
from clearhead.storage import (
    DRAFT,
    RETIRED,
    SUMS,
    read_json,
    verify,
    write_directory,
    write_json,
    write_sums,
    write_text,
)

FILES = {"a.json": "{}\n", "b.txt": "some text\n", "c.bin": "\x00\x01" * 50}
NEW = {name: text + "new" for name, text in FILES.items()}


def filler(content: dict[str, str]) -> Callable[[Path], None]:
    def fill(draft: Path) -> None:
        for name, text in content.items():
            (draft / name).write_text(text, encoding="utf-8")

    return fill


def content_of(directory: Path) -> dict[str, str]:
    """What a directory holds, after checking that it is whole."""
    verify(directory, *FILES)
    return {path.name: path.read_text() for path in directory.iterdir() if path.name != SUMS}


class Crash(BaseException):
    """Not an Exception: nobody may take it for an ordinary error."""


class Accident:
    """Lets the n-th change of the file system fail, and with `is_final` all later ones too, as after a kill."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, error: BaseException, *, is_final: bool) -> None:
        self.left, self.error, self.is_final = at, error, is_final
        self.happened = False
        changes: list[tuple[Any, str]] = [(os, "fsync")]
        changes += [(Path, name) for name in ("rename", "replace", "mkdir", "write_text", "unlink")]
        # Removing passes over errors by itself, though not over kills.
        changes += [] if isinstance(error, OSError) else [(shutil, "rmtree")]
        for owner, name in changes:
            monkeypatch.setattr(owner, name, self._risky(getattr(owner, name)))

    def _risky(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def risky(*args: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0 or (self.happened and self.is_final):
                self.happened = True
                raise self.error
            return change(*args, **options)

        return risky


def crashes(
    tmp_path: Path, *, is_final: bool, error: BaseException, is_first: bool
) -> list[tuple[Path, type[BaseException]]]:
    """Write a directory again and again, each time with the accident one change later, until none happens."""
    places = []
    for at in range(1, 100):
        final = tmp_path / str(at) / "model"
        final.parent.mkdir()
        if not is_first:
            write_directory(final, filler(FILES))
        with pytest.MonkeyPatch.context() as patch:
            accident = Accident(patch, at, error, is_final=is_final)
            try:
                write_directory(final, filler(NEW), replace=True)
            except (StorageError, Crash) as raised:
                places.append((final, type(raised)))
        if not accident.happened:
            assert content_of(final) == NEW
            return places
        if not places or places[-1][0] != final:
            # Only tidying up afterwards may fail without anybody hearing of it.
            assert content_of(final) == NEW
    raise AssertionError("there is no end to it")


# A directory ---------------------------------------------------------------------------------------------------------


def test_a_directory_holds_what_was_written_and_its_sums(tmp_path: Path) -> None:
    write_directory(tmp_path / "deep" / "model", filler(FILES))
    assert content_of(tmp_path / "deep" / "model") == FILES
    lines = (tmp_path / "deep" / "model" / SUMS).read_text().splitlines()
    assert [line.split("  ")[1] for line in lines] == sorted(FILES)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["model"]


def test_the_sums_are_those_of_sha256sum(tmp_path: Path) -> None:
    write_directory(tmp_path / "model", filler({"a": "abc"}))
    # The first example of FIPS 180-2.
    assert (tmp_path / "model" / SUMS).read_text() == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n"
    )


def test_writing_again_replaces_all_of_the_old(tmp_path: Path) -> None:
    final = tmp_path / "model"
    write_directory(final, filler({**FILES, "gone.txt": "old"}))
    write_directory(final, filler(NEW), replace=True)
    assert content_of(final) == NEW
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), Crash()], ids=["error", "interrupt"])
def test_a_failure_at_any_step_leaves_the_old_or_the_new_under_the_name(
    tmp_path: Path, error: BaseException, is_first: bool
) -> None:
    places = crashes(tmp_path, is_final=False, error=error, is_first=is_first)
    assert len(places) > 8
    for final, raised in places:
        assert raised is (StorageError if isinstance(error, OSError) else Crash)
        if final.exists():
            assert content_of(final) in (FILES, NEW)
        else:
            assert is_first
        names = {path.name for path in final.parent.iterdir()}
        assert not any(DRAFT in name for name in names), "a failure leaves no draft behind"


@pytest.mark.parametrize("is_first", [True, False])
def test_a_kill_at_any_step_leaves_nothing_half_under_the_name(tmp_path: Path, is_first: bool) -> None:
    places = crashes(tmp_path, is_final=True, error=Crash(), is_first=is_first)
    assert len(places) > 8
    absent = 0
    for final, _ in places:
        if final.exists():
            assert content_of(final) in (FILES, NEW)
        elif not is_first:
            absent += 1
            (draft,), (aside,) = (list(final.parent.glob(f"model{mark}*")) for mark in (DRAFT, RETIRED))
            assert (content_of(draft), content_of(aside)) == (NEW, FILES)
        write_directory(final, filler(NEW), replace=True)
        assert content_of(final) == NEW
        assert [path.name for path in final.parent.iterdir()] == ["model"], "the next writer tidies up"
    assert absent <= 1


def test_an_error_of_the_filler_leaves_the_old_and_passes_through(tmp_path: Path) -> None:
    final = tmp_path / "model"
    write_directory(final, filler(FILES))

    def fill(draft: Path) -> None:
        filler(NEW)(draft)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_directory(final, fill, replace=True)
    assert content_of(final) == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named_with_exit_code_74(tmp_path: Path, number: int) -> None:
    final = tmp_path / "model"
    write_directory(final, filler(FILES))

    def fill(draft: Path) -> None:
        (draft / "a.json").write_text("half of")
        raise OSError(number, os.strerror(number))

    with pytest.raises(StorageError) as error:
        write_directory(final, fill, replace=True)
    assert error.value.exit_code == 74
    assert str(error.value) == (
        f"the disk is full: {final} was not written; free some space and try again (training: with --resume)"
    )
    assert content_of(final) == FILES


def test_another_trouble_of_the_disk_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    final = tmp_path / "file" / "model"
    with pytest.raises(StorageError) as error:
        write_directory(final, filler(FILES))
    assert str(error.value) == f"cannot write {final}: Not a directory"


def test_a_process_id_may_come_again(tmp_path: Path) -> None:
    final = tmp_path / "model"
    write_directory(final, filler(FILES))
    for mark in (DRAFT, RETIRED):
        rubble = tmp_path / f"model{mark}{os.getpid()}"
        rubble.mkdir()
        (rubble / "x").touch()
    write_directory(final, filler(NEW), replace=True)
    assert content_of(final) == NEW
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_drafts_of_other_names_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / f"model-2{DRAFT}1").mkdir()
    write_directory(tmp_path / "model", filler(FILES))
    assert {path.name for path in tmp_path.iterdir()} == {"model", f"model-2{DRAFT}1"}


def test_copies_that_the_user_has_made_are_left_alone(tmp_path: Path) -> None:
    copies = {"model.old-2025", "model.tmp-1", "model.old-1.tar.gz", f"model{RETIRED}1.tar.gz", "model.old-mine"}
    for name in copies:
        (tmp_path / name).touch()
    for files in (FILES, NEW):
        write_directory(tmp_path / "model", filler(files), replace=True)
        write_text(tmp_path / "page.html", "all of it")
    assert {path.name for path in tmp_path.iterdir()} == {"model", "page.html", *copies}


@pytest.mark.parametrize("kind", ["directory", "file", "link"])
def test_what_came_while_a_directory_was_written_stays(tmp_path: Path, kind: str) -> None:
    final = tmp_path / "model"

    def fill(draft: Path) -> None:
        filler(NEW)(draft)
        if kind == "link":
            final.symlink_to("nowhere")
            return
        thesis = final / "thesis.txt" if kind == "directory" else final
        thesis.parent.mkdir(exist_ok=True)
        thesis.write_text("precious")

    with pytest.raises(WouldOverwriteError) as error:
        write_directory(final, fill)
    assert str(error.value) == f"{final} exists: choose another --out"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    if kind == "link":
        assert final.is_symlink()
    else:
        assert (final / "thesis.txt" if kind == "directory" else final).read_text() == "precious"


SECOND = """
import sys
from pathlib import Path
from clearhead.storage import write_directory
write_directory(Path(sys.argv[1]), lambda draft: (draft / "second.txt").write_text("second"))
"""


def test_of_two_writers_of_one_name_the_first_to_finish_has_it(tmp_path: Path) -> None:
    final = tmp_path / "model"

    def fill(draft: Path) -> None:
        filler(NEW)(draft)
        subprocess.run([sys.executable, "-c", SECOND, str(final)], check=True)
        assert (draft / "a.json").read_text() == NEW["a.json"], "the other one leaves the draft alone"

    with pytest.raises(WouldOverwriteError):
        write_directory(final, fill)
    verify(final, "second.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_only_the_rubble_of_the_dead_is_cleared_away(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    writers: dict[str, Callable[[Path], None]] = {
        "model": lambda path: write_directory(path, filler(FILES)),
        "page.html": lambda path: write_text(path, "all of it"),
    }
    for name, write in writers.items():
        for process in (os.getppid(), dead.pid, 0, 10**30):
            (tmp_path / f"{name}{DRAFT}{process}").mkdir()
        write(tmp_path / name)
    living = {f"{name}{DRAFT}{os.getppid()}" for name in writers}
    assert {path.name for path in tmp_path.iterdir()} == {*writers, *living}


def test_a_process_that_may_not_be_asked_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert storage._is_at_work(os.getppid())
    assert not storage._is_at_work(os.getpid())


def test_where_asking_would_end_a_process_it_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda process, signal: asked.append(process))
        patch.setattr(os, "name", "nt")
        is_at_work = storage._is_at_work(os.getppid())
    assert (is_at_work, asked) == (False, [])


# A file --------------------------------------------------------------------------------------------------------------


def test_a_file_is_the_old_or_the_new_after_a_kill_at_any_step(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    write_text(path, "old")
    seen = set()
    for at in range(1, 100):
        with pytest.MonkeyPatch.context() as patch:
            accident = Accident(patch, at, Crash(), is_final=True)
            try:
                write_text(path, f"new {at}")
            except Crash:
                seen.add(path.read_text())
        if not accident.happened:
            break
    assert "old" in seen
    assert all(text == "old" or text.startswith("new ") for text in seen)
    assert path.read_text() == f"new {at}"
    assert [left.name for left in tmp_path.iterdir()] == ["config.toml"], "the last writer tidied up"


# Sums ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    write_directory(tmp_path / "model", filler(FILES))
    return tmp_path / "model"


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_named(whole: Path, name: str) -> None:
    (whole / name).write_text("other")
    with pytest.raises(StorageError) as error:
        verify(whole)
    assert error.value.exit_code == 74
    assert str(error.value) == (
        f"{whole / name} is damaged or missing: it does not match {SUMS}; restore it from a copy"
    )


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(whole: Path, name: str) -> None:
    (whole / name).unlink()
    with pytest.raises(StorageError, match=f"{name} is damaged or missing"):
        verify(whole)


def test_without_sums_a_directory_is_not_complete(whole: Path) -> None:
    (whole / SUMS).unlink()
    with pytest.raises(StorageError) as error:
        verify(whole)
    assert str(error.value) == f"{whole} is not complete: it has no {SUMS}"


def test_every_flipped_bit_of_the_sums_themselves_is_noticed(whole: Path) -> None:
    """Line ends too: half of them would pass if a broken one were taken for another kind of line end."""
    good = (whole / SUMS).read_bytes()
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        (whole / SUMS).write_bytes(bad)
        with pytest.raises(StorageError):
            verify(whole)
    (whole / SUMS).write_bytes(good)
    verify(whole)


@pytest.mark.parametrize("kept", range(len(FILES)))
def test_sums_that_were_cut_off_are_noticed(whole: Path, kept: int) -> None:
    lines = (whole / SUMS).read_text().splitlines(keepends=True)
    (whole / SUMS).write_text("".join(lines[:kept]))
    with pytest.raises(StorageError):
        verify(whole, *FILES)


def test_a_file_that_is_needed_must_have_a_sum(whole: Path) -> None:
    (whole / "d.json").write_text("{}")
    verify(whole, "a.json")
    with pytest.raises(StorageError) as error:
        verify(whole, "d.json")
    assert str(error.value) == f"{whole / 'd.json'} is not among the sums in {SUMS}; restore them from a copy"


def test_a_sum_may_not_point_out_of_its_directory(whole: Path) -> None:
    (whole.parent / "outside").write_text("abc")
    (whole / SUMS).write_text("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  ../outside\n")
    with pytest.raises(StorageError, match="damaged or missing"):
        verify(whole)


def test_sums_of_some_files_leave_the_rest_alone(tmp_path: Path) -> None:
    filler(FILES)(tmp_path)
    write_sums(tmp_path, [tmp_path / "a.json"])
    (tmp_path / "b.txt").write_text("changed")
    verify(tmp_path, "a.json")


def test_a_file_that_may_not_be_read_is_an_error_of_the_disk(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(StorageError, match=r"cannot read .*: Permission denied"):
        verify(whole)


# JSON ----------------------------------------------------------------------------------------------------------------


def test_json_comes_back_as_it_went(tmp_path: Path) -> None:
    tree = {"words": ["einundzwanzig", "二十一"], "none": None, "number": 0.1}
    write_json(tmp_path / "x.json", tree)
    assert read_json(tmp_path / "x.json") == tree
    assert "二十一" in (tmp_path / "x.json").read_text(encoding="utf-8"), "people should be able to read it"


@pytest.mark.parametrize("rubbish", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"nothing"], ids=repr)
def test_rubbish_is_not_json(tmp_path: Path, rubbish: bytes) -> None:
    (tmp_path / "x.json").write_bytes(rubbish)
    with pytest.raises(StorageError, match=r"x\.json is not valid JSON: "):
        read_json(tmp_path / "x.json")


@pytest.mark.parametrize("text", ["[]", "3", '"text"', "null"])
def test_json_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(StorageError) as error:
        read_json(tmp_path / "x.json")
    assert str(error.value) == f"{tmp_path / 'x.json'} should hold one JSON object"


def test_a_json_file_that_is_not_there_or_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError) as missing:
        read_json(tmp_path / "x.json")
    assert str(missing.value) == f"there is no {tmp_path / 'x.json'}"
    with pytest.raises(StorageError) as directory:
        read_json(tmp_path)
    assert str(directory.value) == f"cannot read {tmp_path}: Is a directory"


def test_directories_get_the_rights_that_the_user_gives_to_new_ones(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_directory(tmp_path / "model", filler(FILES))
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "model").iterdir()}
    assert modes == {0o640}
