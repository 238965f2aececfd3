"""Named columns of numbers in, a folder of raw files out, and back as memory maps.

The folder appears only when it is whole: it is built under another name, flushed to the disk, and then renamed.
`meta.json` in it holds the type, size and SHA-256 of every column, and reading checks them all.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import MissingInputError, StorageError
from clearhead.storage import sync

FORMAT_VERSION = 2
META = "meta.json"
ABANDONED_AFTER_SECONDS = 3600.0


class Columns(NamedTuple):
    """What a folder holds: memory-mapped arrays, and whatever facts were stored beside them."""

    arrays: dict[str, NDArray[Any]]
    facts: dict[str, Any]


class ColumnWriter:
    """Columns while they grow; used in a `with` block, at the end of which an unfinished folder is removed."""

    def __init__(self, directory: Path, dtypes: Mapping[str, str]) -> None:
        self._directory = directory
        self._dtypes = dict(dtypes)
        self._sums = {name: hashlib.sha256() for name in dtypes}
        self._draft = directory.with_name(f"{directory.name}.tmp-{os.getpid()}-{os.urandom(4).hex()}")
        with _storage_errors(directory):
            directory.parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(directory)
            self._draft.mkdir()
            self._files = {name: _path(self._draft, name).open("wb") for name in dtypes}

    def __enter__(self) -> ColumnWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()
        shutil.rmtree(self._draft, ignore_errors=True)

    def append(self, name: str, data: bytes | memoryview) -> None:
        """Make one column longer by numbers of its type."""
        with _storage_errors(self._directory):
            self._files[name].write(data)
        self._sums[name].update(data)

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Put everything on the disk and give the folder its name.

        A whole folder that has the name already is kept: another process was faster.
        """
        with _storage_errors(self._directory):
            columns = {name: self._finish_column(name) for name in self._dtypes}
            meta = {"format_version": FORMAT_VERSION, "facts": dict(facts), "columns": columns}
            with (self._draft / META).open("wb") as file:
                file.write(json.dumps(meta, indent=2).encode())
                file.flush()
                os.fsync(file.fileno())
            sync(self._draft)
            _install(self._draft, self._directory)

    def _finish_column(self, name: str) -> dict[str, Any]:
        with self._files[name] as file:
            file.flush()
            os.fsync(file.fileno())
            return {"dtype": self._dtypes[name], "bytes": file.tell(), "sha256": self._sums[name].hexdigest()}


def read_columns(directory: Path) -> Columns:
    """Check a folder, sizes first, then sums, and map its columns into memory."""
    meta = _checked_meta(directory)
    arrays = {name: _map(_path(directory, name), column["dtype"]) for name, column in meta["columns"].items()}
    return Columns(arrays, meta["facts"])


def _path(directory: Path, name: str) -> Path:
    return directory / f"{name}.bin"


def _checked_meta(directory: Path) -> dict[str, Any]:
    try:
        meta: dict[str, Any] = json.loads((directory / META).read_bytes())
        if meta["format_version"] != FORMAT_VERSION:
            raise StorageError(f"{directory} has format_version {meta['format_version']!r}, not {FORMAT_VERSION}")
        for check in (_check_size, _check_sum):
            for name, column in meta["columns"].items():
                check(_path(directory, name), column)
        return meta
    except FileNotFoundError as error:
        raise MissingInputError(f"{error.filename} is missing") from None
    except OSError as error:
        raise StorageError(f"cannot read {error.filename}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StorageError(f"{directory / META} is damaged: it does not describe the columns") from None


def _check_size(path: Path, column: Mapping[str, Any]) -> None:
    size = path.stat().st_size
    if size != column["bytes"]:
        raise StorageError(f"{path} is damaged: it has {size} bytes, not {column['bytes']}")


def _check_sum(path: Path, column: Mapping[str, Any]) -> None:
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != column["sha256"]:
            raise StorageError(f"{path} is damaged: its SHA-256 is wrong")


def _map(path: Path, dtype: str) -> NDArray[Any]:
    if path.stat().st_size == 0:  # An empty file cannot be mapped.
        return np.empty(0, dtype=dtype)
    # As a plain array over the same map: slices of np.memmap itself are slow.
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))


def _remove_abandoned(directory: Path) -> None:
    """Remove what killed builders left; their process id says nothing where several machines share the folder."""
    oldest = time.time() - ABANDONED_AFTER_SECONDS
    for path in directory.parent.iterdir():
        if path.name.startswith(f"{directory.name}.tmp-"):
            with contextlib.suppress(OSError):
                if max(part.stat().st_mtime for part in (path, *path.iterdir())) < oldest:
                    shutil.rmtree(path)


def _install(draft: Path, directory: Path) -> None:
    try:
        draft.rename(directory)
    except OSError:
        if not directory.exists():
            raise
        with contextlib.suppress(StorageError, MissingInputError):
            _checked_meta(directory)
            return
        shutil.rmtree(directory)
        draft.rename(directory)
    sync(directory.parent)


@contextlib.contextmanager
def _storage_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason, advice = "the disk is full", "make room, or set CLEARHEAD_CACHE to a folder on another disk"
        else:
            reason, advice = str(error.strerror), "set CLEARHEAD_CACHE to a folder that can be written"
        raise StorageError(f"cannot write {directory}: {reason}; {advice}") from None
