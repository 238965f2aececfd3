"""The published archive of IMDb reviews in, the tables that recipes read out: label, rating, id and text, in order.

Members are read one by one in memory; no name in the archive ever becomes a path.
"""

from __future__ import annotations

import gzip
import re
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from clearhead.errors import DataError

HEADER = b"label\trating\tid\ttext\n"
MOST_REVIEWS = 200_000
MOST_BYTES = 1 << 20
"""Of one review."""

_MEMBER = re.compile(r"(?:\./)?aclImdb/(train|test)/(neg|pos|unsup)/(\d{1,6})_(\d{1,2})\.txt")
_TO_SPACES = bytes.maketrans(b"\t\r\n", b"   ")


def tables(archive: Path, progress: Callable[[int], None]) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Every table's name and lines; `progress` hears how many bytes of the archive have been read."""
    found: dict[str, dict[tuple[str, int], bytes]] = defaultdict(dict)
    for split, label, number, rating, text in _reviews(archive, progress):
        rows = found["unsup.tsv" if label == "unsup" else f"{split}.tsv"]
        if (label, number) in rows:
            raise DataError(f"{archive} has two reviews {split}/{label}/{number}: fetch it again")
        rows[label, number] = f"{label}\t{rating}\t{number}\t".encode() + text + b"\n"
    for name, rows in found.items():
        yield name, (HEADER, *(rows[place] for place in sorted(rows)))


def _reviews(archive: Path, progress: Callable[[int], None]) -> Iterator[tuple[str, str, int, int, bytes]]:
    count = 0
    try:
        # Not mode "r|gz": tarfile by itself takes the place where an archive was cut off for its end.
        with (
            archive.open("rb") as raw,
            gzip.GzipFile(fileobj=raw) as unpacked,
            tarfile.open(fileobj=unpacked, mode="r|") as tar,
        ):
            while (member := tar.next()) is not None:
                # It would remember a hundred thousand of them.
                tar.members.clear()  # type: ignore[attr-defined]
                progress(raw.tell())
                parts = _MEMBER.fullmatch(member.name)
                if parts is None or not member.isreg():
                    continue
                count += 1
                if member.size > MOST_BYTES or count > MOST_REVIEWS:
                    raise DataError(f"{archive} is larger than it should be at {member.name}: fetch it again")
                content = tar.extractfile(member)
                assert content is not None
                split, label, number, rating = parts.groups()
                yield split, label, int(number), int(rating), content.read().translate(_TO_SPACES)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"{archive} cannot be unpacked: {error}; remove it and fetch again") from None
