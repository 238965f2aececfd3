"""An address in, a checked file on disk out: what a broken line left behind is gone on with, not fetched again."""

from __future__ import annotations

import contextlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from clearhead.errors import UnavailableError
from clearhead.storage import hold, storage_error

BLOCK = 1 << 20
SECONDS_WITHOUT_ANSWER = 30
Progress = Callable[[str, int, int | None], None]
"""What is under way, how many bytes of it are done, and of how many if that is known."""


def download(
    url: str,
    file: Path,
    name_of: Callable[[Path], Path | None],
    *,
    by_hand: str,
    progress: Progress | None = None,
) -> Path:
    """Download a file, and name it when all of it is there: `name_of` looks at it, and knows None if it is wrong.

    A part that came over a broken line stays beside it for the next try; a whole file that is wrong does not. `by_hand`
    is what else a person can do.
    """
    part = file.with_name(f"{file.name}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with part.open("ab") as out, _alone(out, part):
            _receive(url, out, file.name, progress)
            out.flush()
            os.fsync(out.fileno())
            final = name_of(part)
            if final is None:
                part.unlink()
                raise UnavailableError(f"{url} did not send the file it should (wrong SHA-256): nothing was kept")
            return part.replace(final)
    except urllib.error.HTTPError as error:
        raise UnavailableError(f"{url} answered {error.code}: {by_hand}") from None
    except (urllib.error.URLError, TimeoutError, http.client.HTTPException, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise UnavailableError(f"cannot download {url}: {reason}; try again later, or {by_hand}") from None
    except OSError as error:
        raise storage_error(file, error) from None


def _receive(url: str, out: IO[bytes], name: str, progress: Progress | None) -> None:
    """Append what is missing; a server that cannot begin in the middle sends all of it again."""
    begun = out.tell()
    request = urllib.request.Request(url, headers={"Range": f"bytes={begun}-"} if begun else {})
    try:
        answer = urllib.request.urlopen(request, timeout=SECONDS_WITHOUT_ANSWER)
    except urllib.error.HTTPError as error:
        if begun and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            error.close()
            return  # All of it was here already; its sum tells whether it is the right file.
        raise
    with answer:
        if begun and answer.status != http.HTTPStatus.PARTIAL_CONTENT:
            out.truncate(0)
            begun = 0
        length = answer.headers.get("Content-Length")
        total = begun + int(length) if length is not None else None
        received, is_cut = begun, False
        try:
            while block := _block(answer):
                out.write(block)
                received += len(block)
                if progress is not None:
                    progress(name, received, total)
        except http.client.IncompleteRead as error:
            out.write(error.partial)
            received += len(error.partial)
            is_cut = True
        if is_cut or (total is not None and received != total):
            done = f"{received:,} bytes" if total is None else f"{received:,} of {total:,} bytes"
            raise UnavailableError(f"{url} was cut off after {done}: try again, and it goes on there")


def _block(answer: IO[bytes]) -> bytes:
    """Some more of an answer; whatever breaks a line, no disk is to blame."""
    try:
        return answer.read(BLOCK)
    except OSError as error:
        raise urllib.error.URLError(error) from None


@contextlib.contextmanager
def _alone(file: IO[bytes], part: Path) -> Iterator[None]:
    """Let one process at a time write a part, and remove it where nothing came, while no other may write it."""
    hold(file, f"{part} is being written")
    file.seek(0, os.SEEK_END)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.flush()
            if os.fstat(file.fileno()).st_size == 0:
                part.unlink()
