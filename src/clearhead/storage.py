"""Files in, the same files safely on disk out: a directory gets its name only when all of it is there, sums included.

Save once: write `NAME.clearhead-tmp-PID/`, fsync, sums, fsync, rename, fsync the parent. A kill at any moment leaves
the old or the new, never half of one; between the renames that change one for the other, both are there under other
names.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from clearhead.errors import MissingInputError, StorageError, UnavailableError, WouldOverwriteError

SUMS = "SHA256SUMS"
SCALES = "_scale"
"""What stands behind a matrix's name to name the scales of its rows, where it is stored in int8."""
DRAFT, RETIRED = ".clearhead-tmp-", ".clearhead-old-"
"""What stands between a name and a process id while a directory is written, and while it is removed: a name that nobody
gives to a copy of his own."""


def write_directory(final: Path, fill: Callable[[Path], None], *, replace: bool = False) -> None:
    """Let `fill` write a directory, and give it its name only when all of it is on disk.

    With `replace`, what has that name by then goes; else it stays, also what came while `fill` was at work.
    """
    draft = final.with_name(f"{final.name}{DRAFT}{os.getpid()}")
    try:
        clear(final, DRAFT)
        draft.mkdir(parents=True)
        fill(draft)
        write_sums(draft, (path for path in draft.iterdir() if path.is_file()))
        _put_in_place(draft, final, replace)
        clear(final, RETIRED)
    except OSError as error:
        raise storage_error(final, error) from error
    finally:
        remove(draft)


def _put_in_place(draft: Path, final: Path, replace: bool) -> None:
    if not replace:
        refuse_existing(final)
    aside = retire(final) if replace and final.exists() else None
    try:
        draft.rename(final)
    except BaseException:
        if aside is not None:
            aside.rename(final)
        raise
    sync(final.parent)


def refuse_existing(out: Path) -> None:
    """Let nothing be written over what is there: a file, a directory, or a link, wherever that leads."""
    if os.path.lexists(out):
        raise WouldOverwriteError(f"{out} exists: choose another --out")


def write_text(path: Path, text: str) -> None:
    """Write a file such that its name is never seen on a part of it."""
    clear(path, DRAFT)
    draft = path.with_name(f"{path.name}{DRAFT}{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    sync(draft)
    draft.replace(path)
    sync(path.parent)


def clear(final: Path, mark: str) -> None:
    """Remove what writers of this name that were killed left beside it, and nothing of those who still write."""
    if final.parent.is_dir():
        for path in list(final.parent.iterdir()):
            beginning, _, process = path.name.rpartition(mark)
            if beginning == final.name and process.isdecimal() and not _is_at_work(int(process)):
                remove(path)


def _is_at_work(process: int) -> bool:
    """Whether this is another process that lives, where the system can tell."""
    if process in (0, os.getpid()) or os.name != "posix":  # Elsewhere, asking would end it.
        return False
    try:
        os.kill(process, 0)
    except PermissionError:  # Somebody else's.
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def remove(path: Path) -> None:
    """Remove a directory, file or link as far as that is possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def storage_error(path: Path, error: OSError) -> StorageError:
    """What the disk said, as one line."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            f"the disk is full: {path} was not written; free some space and try again (training: with --resume)"
        )
    return StorageError(f"cannot write {path}: {error.strerror or error}")


def sync(path: Path) -> None:
    """Make sure that a file, or a directory's list of names, is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def hold(file: IO[bytes], busy: str) -> None:
    """Let no other process hold a file until it is closed, where the system can tell; `busy` is said if one does."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UnavailableError(f"{busy} by another process: wait for it, or stop it") from None
    except OSError:  # Some network drives cannot tell.
        return


def retire(old: Path) -> Path:
    """Take its name from a directory in one moment, to be removed; its new name comes back."""
    aside = old.with_name(f"{old.name}{RETIRED}{os.getpid()}")
    # Process ids come again, in containers always.
    remove(aside)
    return old.rename(aside)


def write_sums(directory: Path, files: Iterable[Path]) -> None:
    """Make sure that files are on disk, and write their sums beside them."""
    files = sorted(files)
    for path in files:
        sync(path)
    sums = directory / SUMS
    sums.write_text("".join(f"{_sha256(path)}  {path.name}\n" for path in files), encoding="utf-8")
    sync(sums)
    sync(directory)


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise MissingInputError(f"there is no {path}") from None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from None


def verify(directory: Path, *needed: str) -> set[str]:
    """Compare every file with the sums written beside it; a flipped bit is an error, not a model.

    `needed` are the files that must be among them; the names of all that are come back.
    """
    sums = directory / SUMS
    if not sums.is_file():
        raise StorageError(f"{directory} is not complete: it has no {SUMS}")
    # Not splitlines: it would take a damaged line end for another kind of line end.
    lines = _read(sums).decode("utf-8", errors="replace").removesuffix("\n").split("\n")
    expected = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    check_listed(directory, set(expected), needed)
    for name, digest in expected.items():
        path = directory / name
        if not name or Path(name).name != name or not path.is_file() or _sha256(path) != digest:
            raise StorageError(f"{path} is damaged or missing: it does not match {SUMS}; restore it from a copy")
    return set(expected)


def check_listed(directory: Path, listed: set[str], needed: Iterable[str]) -> None:
    """Refuse a directory whose sums leave out a file that it must have."""
    for name in needed:
        if name not in listed:
            raise StorageError(f"{directory / name} is not among the sums in {SUMS}; restore them from a copy")


def write_json(path: Path, tree: Mapping[str, Any]) -> None:
    """Write JSON as people like to read it."""
    path.write_text(json.dumps(tree, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, or say what is wrong with it."""
    try:
        tree = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(tree, dict):
        raise StorageError(f"{path} should hold one JSON object")
    return tree
