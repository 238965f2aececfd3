"""Sentence pairs and tokenizers in, token ids in memory-mapped files out: a corpus is tokenised once and then cached.

On disk are the ids of all sentences end to end, the offsets where each begins, and the line each pair came from, so
that ten million pairs cost Python no object each.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from clearhead.data import columns
from clearhead.data.columns import ColumnWriter, read_columns
from clearhead.data.crew import Pair, encoded
from clearhead.data.examples import Draw, Integers
from clearhead.data.splitting import Splitting
from clearhead.errors import MissingInputError, StorageError
from clearhead.text import BOS_ID, EOS_ID, PAD_ID, TokenizerPair

CHUNK = 4096
DERIVATION = 1
"""Raise it with every change by which the same data and settings give something else: other pairs kept, altered or
spelt, texts cut at other places, other tokens. What was stored until then is then made anew; a test tells when."""

Progress = Callable[[int], None]
Result = TypeVar("Result")


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


@dataclass(frozen=True, eq=False)
class PairBatch:
    """Sentence pairs of similar length as two padded arrays of ids.

    A row of `source` is the sentence and `</s>`; a row of `target` is `<s>`, the sentence and `</s>`; both are padded
    on the right. Teacher forcing: the decoder is given `target[:, :-1]` and must answer `target[:, 1:]`, the same
    sentence one token ahead, so that it learns every position at once from the true words before it.
    """

    source: NDArray[np.int64]
    """(batch, source_time)"""

    target: NDArray[np.int64]
    """(batch, target_time + 1)"""

    source_lengths: NDArray[np.int64]
    """Tokens of each row of `source`, `</s>` included, padding not."""

    target_lengths: NDArray[np.int64]
    """Answers of each row of `target`: its tokens and `</s>`."""

    indices: NDArray[np.int64]
    """Where in the corpus each row comes from."""

    @property
    def num_answers(self) -> int:
        """How many answers the batch asks for; the loss is a mean over these."""
        return int(self.target_lengths.sum())

    @property
    def source_is_full(self) -> bool:
        """Whether no row of `source` has padding, so that no mask is needed."""
        return bool((self.source_lengths == self.source.shape[1]).all())

    @property
    def target_is_full(self) -> bool:
        """Whether no row of `target` has padding."""
        return bool((self.target_lengths == self.target.shape[1] - 1).all())


class TokenisedPairs:
    """Sentence pairs as token ids, without control tokens: the examples of a translator.

    The ids stay on the disk until they are looked at.
    """

    def __init__(
        self,
        source: Sentences,
        target: Sentences,
        line_numbers: NDArray[np.int64],
        dropped_too_long: int,
        splitting: Splitting | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self.line_numbers = line_numbers
        self.dropped_too_long = dropped_too_long
        self._splitting = splitting

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

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of the longer side of each, `</s>` included."""
        return np.maximum(self.source_lengths, self.target_lengths) + np.int32(1)

    @property
    def sort_keys(self) -> tuple[Integers, ...]:
        """The longer side, then the source, then the target."""
        return self.target_lengths, self.source_lengths, self.lengths

    @property
    def answers(self) -> NDArray[np.int32]:
        """The tokens of each target, and `</s>`."""
        return self.target_lengths + np.int32(1)

    @property
    def work(self) -> NDArray[np.int32]:
        """The tokens of both sides."""
        return self.source_lengths + self.target_lengths + np.int32(2)

    def where(self, row: int) -> str:
        """The pair that a row is, or is an altered copy of."""
        return f"pair {self.line_numbers[row]:,}"

    def batch(self, rows: Integers, draw: Draw | None = None) -> PairBatch:
        """Pad some pairs to the longest of them; source sentences may be split as the draw will have it."""
        sources = [self.source(index) for index in rows]
        if draw is not None and self._splitting is not None:
            sources = self._splitting.split(sources, rows, draw)
        source_lengths = np.array([len(sentence) for sentence in sources], dtype=np.int64) + 1
        target_lengths = self.target_lengths[rows].astype(np.int64) + 1
        source = np.full((len(rows), source_lengths.max()), PAD_ID, dtype=np.int64)
        target = np.full((len(rows), target_lengths.max() + 1), PAD_ID, dtype=np.int64)
        target[:, 0] = BOS_ID
        for place, index in enumerate(rows):
            source[place, : source_lengths[place] - 1] = sources[place]
            target[place, 1 : target_lengths[place]] = self.target(index)
        places = np.arange(len(rows))
        source[places, source_lengths - 1] = EOS_ID
        target[places, target_lengths] = EOS_ID
        return PairBatch(source, target, source_lengths, target_lengths, np.asarray(rows, dtype=np.int64))

    def subset(self, indices: Integers) -> TokenisedPairs:
        """A view of some pairs, in the order given; the ids are not copied."""
        source, target = self._source.subset(indices), self._target.subset(indices)
        return TokenisedPairs(source, target, self.line_numbers[indices], self.dropped_too_long, self._splitting)

    def split_by(self, splitting: Splitting | None) -> TokenisedPairs:
        """The same pairs, their source sentences split where chance has a say: in training."""
        return TokenisedPairs(self._source, self._target, self.line_numbers, self.dropped_too_long, splitting)

    @classmethod
    def open(cls, directory: Path) -> TokenisedPairs:
        """Map a stored corpus into memory, after checking that it is whole."""
        arrays, facts = read_columns(directory)
        sides = ("source", "target")
        source, target = (sentences_of(arrays[f"{side}_ids"], arrays[f"{side}_offsets"]) for side in sides)
        return cls(source, target, arrays["line_numbers"], facts["dropped_too_long"])


def sentences_of(ids: Integers, offsets: NDArray[np.int64]) -> Sentences:
    """Sentences that lie end to end, from the offsets between them."""
    return Sentences(ids, offsets[:-1], np.diff(offsets).astype(np.int32))


def cache_root() -> Path:
    """Where tokenised corpora are kept: $CLEARHEAD_CACHE, or else `clearhead` in the user's cache folder."""
    xdg = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    try:
        return Path(os.environ.get("CLEARHEAD_CACHE") or xdg / "clearhead").expanduser()
    except RuntimeError:  # Such a user may be that of a container or a service.
        raise StorageError(
            "this user has no home folder: set CLEARHEAD_CACHE to a folder that can be written"
        ) from None


def cache_key(*parts: str) -> str:
    """One hash of several strings; it changes with any of them, with the borders between them and with DERIVATION."""
    return hashlib.sha256(json.dumps([DERIVATION, *parts]).encode()).hexdigest()


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
    workers: int = 1,
    progress: Progress | None = None,
) -> TokenisedPairs:
    """Open the cached corpus; build it if it is not there or is damaged.

    `content` stands for what `pairs()` yields: the `cache_key` of the data's fingerprint and the filter settings.
    Tokenizers, `max_len` and format are added to the key here, so they cannot be forgotten.
    """
    steps = opening_or_tokenising(content, pairs, tokenizers, max_len=max_len, root=root, workers=workers)
    return driven(steps, progress)


def opening_or_tokenising(
    content: str,
    pairs: Callable[[], Iterable[Pair]],
    tokenizers: TokenizerPair,
    *,
    max_len: int,
    root: Path | None = None,
    workers: int = 1,
) -> Generator[int, None, TokenisedPairs]:
    """`open_or_tokenise` as it goes: how many pairs have been read is yielded, the corpus is returned."""
    directory = (root or cache_root()) / corpus_key(content, tokenizers, max_len)
    with contextlib.suppress(MissingInputError, StorageError):
        return TokenisedPairs.open(directory)
    return (yield from tokenising(pairs(), tokenizers, directory, max_len=max_len, workers=workers))


def tokenise(
    pairs: Iterable[Pair],
    tokenizers: TokenizerPair,
    directory: Path,
    *,
    max_len: int,
    workers: int = 1,
    progress: Progress | None = None,
) -> TokenisedPairs:
    """Encode (line number, source, target) triples, a chunk at a time, into a folder that appears only when whole.

    A pair is dropped, and counted, if a side with its `</s>` is longer than `max_len`, the longest a model takes.
    `progress` hears how many pairs have been read: one and its altered copies, which follow it under the same number,
    are one. Any number of `workers`, which are processes, writes the same bytes. A whole corpus that is already in
    `directory` is kept and opened: folders are named after their content, and another process may have been faster.
    """
    return driven(tokenising(pairs, tokenizers, directory, max_len=max_len, workers=workers), progress)


def tokenising(
    pairs: Iterable[Pair], tokenizers: TokenizerPair, directory: Path, *, max_len: int, workers: int = 1
) -> Generator[int, None, TokenisedPairs]:
    """`tokenise` as it goes: how many pairs have been read is yielded, the corpus is returned."""
    rows = dropped = 0
    passing = _Passing(pairs)
    with (
        ColumnWriter(directory, _dtypes(tokenizers)) as writer,
        contextlib.closing(encoded(passing, tokenizers, max_len, workers, CHUNK)) as chunks,
    ):
        sides = SideWriter(writer, "source_"), SideWriter(writer, "target_")
        for chunk in chunks:
            sides[0].append(chunk.source_ids, chunk.source_lengths)
            sides[1].append(chunk.target_ids, chunk.target_lengths)
            writer.append("line_numbers", chunk.line_numbers)
            dropped += chunk.dropped
            rows += chunk.dropped + len(chunk.line_numbers) // np.dtype("<i8").itemsize
            yield passing.num_pairs(rows)
        writer.finish({"dropped_too_long": dropped})
    return TokenisedPairs.open(directory)


class _Passing:
    """Pairs on their way to be encoded, and which of them were copies, until those are done."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._pairs = pairs
        self._copies: deque[int] = deque()
        self._done = 0

    def __iter__(self) -> Iterator[Pair]:
        before = None
        for row, pair in enumerate(self._pairs):
            if pair[0] == before:
                self._copies.append(row)
            before = pair[0]
            yield pair

    def num_pairs(self, rows: int) -> int:
        """How many of the first so many are no copies; the next time it must be as many or more."""
        while self._copies and self._copies[0] < rows:
            self._copies.popleft()
            self._done += 1
        return rows - self._done


def driven(steps: Generator[int, None, Result], progress: Progress | None) -> Result:
    """Let steps run to their end, telling `progress` of each."""
    while True:
        try:
            done = next(steps)
        except StopIteration as end:
            return cast(Result, end.value)
        if progress is not None:
            progress(done)


class SideWriter:
    """Two columns: the ids of sentences end to end, and the offsets between them."""

    def __init__(self, writer: ColumnWriter, prefix: str = "") -> None:
        self._writer, self._prefix, self._end = writer, prefix, 0
        writer.append(f"{prefix}offsets", bytes(np.dtype("<i8").itemsize))

    def append(self, ids: bytes, lengths: bytes) -> None:
        """Some more sentences."""
        ends = self._end + np.cumsum(np.frombuffer(lengths, dtype="<i4"), dtype="<i8")
        self._writer.append(f"{self._prefix}ids", ids)
        self._writer.append(f"{self._prefix}offsets", ends.tobytes())
        self._end = int(ends[-1]) if len(ends) else self._end


def _dtypes(tokenizers: TokenizerPair) -> dict[str, str]:
    ids = {"source_ids": tokenizers.source.id_type, "target_ids": tokenizers.target.id_type}
    return {**ids, "source_offsets": "<i8", "target_offsets": "<i8", "line_numbers": "<i8"}
