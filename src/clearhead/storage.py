"""Files in, the same files safely on disk out: a directory gets its name only when all of it is there, sums included.

Save once: write `NAME.tmp-PID/`, fsync, sums, fsync, rename, fsync the parent. A kill at any moment leaves the old or
the new, never half of one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clearhead.errors import MissingInputError, StorageError

SUMS = "SHA256SUMS"


def write_directory(final: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` write a directory, and give it its name only when all of it is on disk."""
    draft = final.with_name(f"{final.name}.tmp-{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        fill(draft)
        _write_sums(draft)
        if final.exists():
            retire(final)
        draft.rename(final)
        sync(final.parent)
    except OSError as error:
        raise storage_error(final, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def storage_error(path: Path, error: OSError) -> StorageError:
    """What the disk said, as one line."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(f"the disk is full: {path} was not written; free some space and go on with --resume")
    return StorageError(f"cannot write {path}: {error.strerror or error}")


def sync(path: Path) -> None:
    """Make sure that a file, or a directory's list of names, is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def retire(old: Path) -> None:
    """Remove a directory such that its name is never seen on a part of it."""
    aside = old.with_name(f"{old.name}.old-{os.getpid()}")
    old.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _write_sums(directory: Path) -> None:
    files = sorted(path for path in directory.iterdir() if path.is_file())
    for path in files:
        sync(path)
    sums = directory / SUMS
    sums.write_text("".join(f"{_sha256(path)}  {path.name}\n" for path in files), encoding="utf-8")
    sync(sums)
    sync(directory)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(directory: Path) -> None:
    """Compare every file with the sums written beside it; a flipped bit is an error, not a model."""
    sums = directory / SUMS
    if not sums.is_file():
        raise StorageError(f"{directory} is not complete: it has no {SUMS}")
    for line in sums.read_text(encoding="utf-8", errors="replace").splitlines():
        expected, _, name = line.partition("  ")
        path = directory / name
        if not name or Path(name).name != name or not path.is_file() or _sha256(path) != expected:
            raise StorageError(f"{path} is damaged or missing: it does not match {SUMS}; restore it from a copy")


def write_json(path: Path, tree: Mapping[str, Any]) -> None:
    """Write JSON as people like to read it."""
    path.write_text(json.dumps(tree, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, or say what is wrong with it."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingInputError(f"there is no {path}") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(tree, dict):
        raise StorageError(f"{path} should hold one JSON object")
    return tree
