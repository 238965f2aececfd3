"""Sentence pairs and tokenizers in, token ids in memory-mapped files out: a corpus is tokenised once and then cached.

On disk are the ids of all sentences end to end, the offsets where each begins, and the line each pair came from, so
that ten million pairs cost Python no object each.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data import columns
from clearhead.data.columns import ColumnWriter, read_columns
from clearhead.errors import DataError, MissingInputError, StorageError
from clearhead.text import Tokenizer, TokenizerPair

CHUNK = 4096

Pair = tuple[int, str, str]
Rows = list[list[int]]
Integers = NDArray[np.integer[Any]]
Progress = Callable[[int], None]


class Sentences(NamedTuple):
    """Many sentences over one flat array of ids."""

    ids: Integers
    starts: NDArray[np.int64]
    lengths: NDArray[np.int32]

    def sentence(self, index: int) -> Integers:
        """The ids of one sentence."""
        start = self.starts[index]
        return self.ids[start : start + self.lengths[index]]

    def subset(self, indices: Integers) -> Sentences:
        """Some of the sentences, over the same ids."""
        return Sentences(self.ids, self.starts[indices], self.lengths[indices])


class TokenisedPairs:
    """Sentence pairs as token ids, without control tokens; the ids stay on the disk until they are looked at."""

    def __init__(
        self, source: Sentences, target: Sentences, line_numbers: NDArray[np.int64], dropped_too_long: int
    ) -> None:
        self._source = source
        self._target = target
        self.line_numbers = line_numbers
        self.dropped_too_long = dropped_too_long

    def __len__(self) -> int:
        return len(self.line_numbers)

    def source(self, index: int) -> Integers:
        """The ids of one source sentence."""
        return self._source.sentence(index)

    def target(self, index: int) -> Integers:
        """The ids of one target sentence."""
        return self._target.sentence(index)

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        """How many tokens each source sentence has."""
        return self._source.lengths

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        """How many tokens each target sentence has."""
        return self._target.lengths

    def subset(self, indices: Integers) -> TokenisedPairs:
        """A view of some pairs, in the order given; the ids are not copied."""
        source, target = self._source.subset(indices), self._target.subset(indices)
        return TokenisedPairs(source, target, self.line_numbers[indices], self.dropped_too_long)

    @classmethod
    def open(cls, directory: Path) -> TokenisedPairs:
        """Map a stored corpus into memory, after checking that it is whole."""
        arrays, facts = read_columns(directory)
        source, target = (_sentences(arrays[f"{side}_ids"], arrays[f"{side}_offsets"]) for side in ("source", "target"))
        return cls(source, target, arrays["line_numbers"], facts["dropped_too_long"])


def _sentences(ids: Integers, offsets: NDArray[np.int64]) -> Sentences:
    return Sentences(ids, offsets[:-1], np.diff(offsets).astype(np.int32))


def cache_root() -> Path:
    """Where tokenised corpora are kept: $CLEARHEAD_CACHE, or else `clearhead` in the user's cache folder."""
    if ours := os.environ.get("CLEARHEAD_CACHE"):
        return Path(ours).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "clearhead"


def cache_key(*parts: str) -> str:
    """One hash of several strings; it changes with any of them and with the borders between them."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def corpus_key(content: str, tokenizers: TokenizerPair, max_len: int) -> str:
    """The name of a tokenised corpus in the cache."""
    return cache_key(content, tokenizers.fingerprint(), f"max_len {max_len}", f"format {columns.FORMAT_VERSION}")


def open_or_tokenise(
    content: str,
    pairs: Callable[[], Iterable[Pair]],
    tokenizers: TokenizerPair,
    *,
    max_len: int,
    root: Path | None = None,
    progress: Progress | None = None,
) -> TokenisedPairs:
    """Open the cached corpus; build it if it is not there or is damaged.

    `content` stands for what `pairs()` yields: the `cache_key` of the data's fingerprint and the filter settings.
    Tokenizers, `max_len` and format are added to the key here, so they cannot be forgotten.
    """
    directory = (root or cache_root()) / corpus_key(content, tokenizers, max_len)
    with contextlib.suppress(MissingInputError, StorageError):
        return TokenisedPairs.open(directory)
    return tokenise(pairs(), tokenizers, directory, max_len=max_len, progress=progress)


def tokenise(
    pairs: Iterable[Pair],
    tokenizers: TokenizerPair,
    directory: Path,
    *,
    max_len: int,
    progress: Progress | None = None,
) -> TokenisedPairs:
    """Encode (line number, source, target) triples, a chunk at a time, into a folder that appears only when whole.

    A pair is dropped, and counted, if a side with its `</s>` is longer than `max_len`, the longest a model takes.
    `progress` hears how many pairs have been read. A whole corpus that is already in `directory` is kept and opened:
    folders are named after their content, and another process may have been faster.
    """
    read = kept = 0
    with ColumnWriter(directory, _dtypes(tokenizers)) as writer:
        sides = _SideWriter(writer, "source"), _SideWriter(writer, "target")
        for chunk in _chunks(pairs):
            source, target, lines = _encode(chunk, tokenizers, max_len)
            for side, rows in zip(sides, (source, target), strict=True):
                side.append(rows)
            writer.append("line_numbers", lines)
            read, kept = read + len(chunk), kept + len(lines)
            if progress is not None:
                progress(read)
        writer.finish({"dropped_too_long": read - kept})
    return TokenisedPairs.open(directory)


class _SideWriter:
    """One side's two columns: ids end to end, and the offsets between sentences."""

    def __init__(self, writer: ColumnWriter, side: str) -> None:
        self._writer, self._side, self._end = writer, side, 0
        writer.append(f"{side}_offsets", [0])

    def append(self, rows: Rows) -> None:
        ends = list(itertools.accumulate(map(len, rows), initial=self._end))
        self._writer.append(f"{self._side}_ids", itertools.chain.from_iterable(rows))
        self._writer.append(f"{self._side}_offsets", ends[1:])
        self._end = ends[-1]


def _dtypes(tokenizers: TokenizerPair) -> dict[str, str]:
    ids = {
        f"{side}_ids": "<u2" if tokenizer.vocab_size <= 2**16 else "<u4"
        for side, tokenizer in (("source", tokenizers.source), ("target", tokenizers.target))
    }
    return {**ids, "source_offsets": "<i8", "target_offsets": "<i8", "line_numbers": "<i8"}


def _chunks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    rest = iter(pairs)
    while chunk := list(itertools.islice(rest, CHUNK)):
        yield chunk


def _encode(chunk: Sequence[Pair], tokenizers: TokenizerPair, max_len: int) -> tuple[Rows, Rows, list[int]]:
    lines = [line for line, _, _ in chunk]
    sources = _encode_side(tokenizers.source, lines, [source for _, source, _ in chunk])
    targets = _encode_side(tokenizers.target, lines, [target for _, _, target in chunk])
    kept = [row for row in range(len(chunk)) if max(len(sources[row]), len(targets[row])) < max_len]
    return [sources[row] for row in kept], [targets[row] for row in kept], [lines[row] for row in kept]


def _encode_side(tokenizer: Tokenizer, lines: Sequence[int], texts: Sequence[str]) -> Rows:
    try:
        return tokenizer.encode_batch(texts)
    except DataError:
        for line, text in zip(lines, texts, strict=True):
            try:
                tokenizer.encode(text)
            except DataError as error:
                raise DataError(f"line {line}: {error}") from None
        raise
