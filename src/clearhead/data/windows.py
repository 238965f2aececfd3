"""Running text in, token ids in one memory-mapped file out, and windows of them as examples for a language model.

Each token is an answer, and what stands before it in its window is what the model may go by. A way to lay windows over
a text is one class and one line in WINDOWINGS.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray
from pydantic import Field

from clearhead.config import one_of
from clearhead.data import columns
from clearhead.data.columns import ColumnWriter, read_columns
from clearhead.data.corpus import cache_key, cache_root
from clearhead.data.examples import Draw
from clearhead.data.naming import NamedFiles
from clearhead.data.passages import pieces
from clearhead.errors import MissingInputError, StorageError
from clearhead.text import BOS_ID, PAD_ID, UNK_ID, Tokenizer

CHUNK = 1 << 20
"""Characters that are tokenised together."""

Integers = NDArray[np.integer[Any]]


class TokenisedText(NamedTuple):
    """A text as token ids, which stay on the disk until they are looked at."""

    ids: Integers
    characters: int
    bytes: int
    """Of its UTF-8."""

    @property
    def unknown(self) -> int:
        """How many of its tokens the tokenizer does not know."""
        return int(np.count_nonzero(self.ids == UNK_ID))

    @classmethod
    def open(cls, directory: Path) -> TokenisedText:
        """Map a stored text into memory, after checking that it is whole."""
        arrays, facts = read_columns(directory)
        return cls(arrays["ids"], facts["characters"], facts["bytes"])


def text_key(content: str, tokenizer: Tokenizer) -> str:
    """The name of a tokenised text in the cache."""
    return cache_key("text", content, tokenizer.fingerprint(), f"format {columns.FORMAT_VERSION}")


def opening_or_tokenising_text(
    content: str, passages: Callable[[], Iterable[str]], tokenizer: Tokenizer, root: Path | None = None
) -> Generator[int, None, TokenisedText]:
    """Open a text in the cache, or put it there; how many characters were read is yielded, the text is returned.

    `content` stands for what `passages()` yields: another text has another one.
    """
    directory = (root or cache_root()) / text_key(content, tokenizer)
    with contextlib.suppress(MissingInputError, StorageError):
        return TokenisedText.open(directory)
    return (yield from tokenising_text(passages(), tokenizer, directory))


def tokenising_text(
    passages: Iterable[str], tokenizer: Tokenizer, directory: Path
) -> Generator[int, None, TokenisedText]:
    """Encode a text a chunk at a time into a folder that appears only when whole."""
    characters = num_bytes = 0
    with ColumnWriter(directory, {"ids": tokenizer.id_type}) as writer:
        for chunk in _chunks(pieces(passages)):
            writer.append("ids", b"".join(tokenizer.pack(chunk)))
            characters += sum(map(len, chunk))
            num_bytes += sum(len(piece.encode()) for piece in chunk)
            yield characters
        writer.finish({"characters": characters, "bytes": num_bytes})
    return TokenisedText.open(directory)


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    size = 0
    for text in texts:
        chunk.append(text)
        size += len(text)
        if size >= CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


@dataclass(frozen=True, eq=False)
class WindowBatch:
    """Windows of a text as two arrays: `answers` is what comes right after each of `inputs`; padded on the right."""

    inputs: NDArray[np.int64]
    """(batch, time)"""
    answers: NDArray[np.int64]
    """(batch, time)"""
    lengths: NDArray[np.int64]
    """Answers of each row, padding not counted."""

    @property
    def num_answers(self) -> int:
        """How many answers the batch asks for."""
        return int(self.lengths.sum())

    @property
    def is_full(self) -> bool:
        """Whether no row has padding, so that no mask is needed."""
        return bool((self.lengths == self.answers.shape[1]).all())


class Tiled:
    """Every token once in each epoch, in windows side by side that begin at another place each time.

    The text is read as a ring, so that wherever they begin nothing is left over: one window may hold its end, then
    `<s>` and its beginning. For validation the first window begins at the beginning; only the last may be short. How
    many there are follows from the text, whatever `count` says.
    """

    def __init__(self, ids: Integers, max_len: int, count: int | None = None) -> None:
        self.ids, self.max_len = ids, min(max_len, max(1, len(ids)))
        self._count = -(-len(ids) // self.max_len)
        self.answers = np.full(self._count, self.max_len, dtype=np.int64)
        self.answers[-1:] = len(ids) - (self._count - 1) * self.max_len

    def __len__(self) -> int:
        return self._count

    @property
    def lengths(self) -> Integers:
        """A short window counts as much as the others: it is padded to their length."""
        return np.full(self._count, self.max_len, dtype=np.int32)

    @property
    def sort_keys(self) -> tuple[Integers, ...]:
        """Nothing to sort by."""
        return ()

    @property
    def work(self) -> Integers:
        """The same for all but one."""
        return self.answers

    def batch(self, rows: Integers, draw: Draw | None) -> WindowBatch:
        """Some windows; the draw says where the first one begins."""
        offset = 0 if draw is None else int(hashed(draw, np.zeros(1, dtype=np.int64))[0] % np.uint64(len(self.ids)))
        return cut_windows(self.ids, offset + rows.astype(np.int64) * self.max_len, self.answers[rows])


class Random:
    """Windows that begin anywhere, drawn with replacement as nanoGPT does it.

    An epoch has as many as fill the text once, or `count`. Without a draw they are always the same.
    """

    def __init__(self, ids: Integers, max_len: int, count: int | None = None) -> None:
        self.ids, self.max_len = ids, min(max_len, max(1, len(ids)))
        self._count = count or -(-len(ids) // self.max_len)

    def __len__(self) -> int:
        return self._count

    @property
    def lengths(self) -> Integers:
        """All alike."""
        return np.full(self._count, self.max_len, dtype=np.int32)

    @property
    def sort_keys(self) -> tuple[Integers, ...]:
        """Nothing to sort by."""
        return ()

    @property
    def answers(self) -> Integers:
        """All alike."""
        return np.full(self._count, self.max_len, dtype=np.int64)

    @property
    def work(self) -> Integers:
        """All alike."""
        return self.answers

    def batch(self, rows: Integers, draw: Draw | None) -> WindowBatch:
        """Some windows; each begins where its number and the draw say."""
        places = np.uint64(len(self.ids) - self.max_len + 1)
        starts = (hashed(draw or Draw(0, 0), rows) % places).astype(np.int64)
        return cut_windows(self.ids, starts, np.full(len(rows), self.max_len, dtype=np.int64))


def cut_windows(ids: Integers, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> WindowBatch:
    """So many answers from each start on; the text goes round, and before its first token stands `<s>`."""
    steps = np.arange(int(lengths.max()))
    places = (starts[:, None] + steps) % len(ids)
    answers = ids[places].astype(np.int64)
    inputs = np.where(places == 0, BOS_ID, ids[places - 1].astype(np.int64))
    beyond = steps >= lengths[:, None]
    if beyond.any():
        answers[beyond] = inputs[beyond] = PAD_ID
    return WindowBatch(inputs, answers, lengths)


def hashed(draw: Draw, numbers: Integers) -> NDArray[np.uint64]:
    """A number from 0 to 2⁶⁴ for each example, which follows from the draw and its own number alone."""
    # The mixer of SplitMix64 (Steele et al. 2014) over numbers that are a golden ratio apart.
    key = SeedSequence([draw.seed, draw.epoch]).generate_state(1, np.uint64)
    mixed = key + (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


WINDOWINGS: dict[str, type[Tiled] | type[Random]] = {"tiled": Tiled, "random": Random}


class TextConfig(NamedFiles):
    """Where the text of a language model comes from, and how it is cut."""

    FILES = ("text", "validation_text", "test_text")

    text: str | None = None
    """The text to train on, plain or gzip."""

    validation_text: str | None = None
    """Another text to validate on; without one, the end of the text is kept for that."""

    test_text: str | None = None
    """A text for the final test."""

    hold_out: float = Field(default=0.1, gt=0, lt=1)
    """Without a validation text: the share of the text, at its end, that is not trained on."""

    windows: Annotated[str, one_of(WINDOWINGS, "way to cut a text")] = "tiled"
    """`tiled`: every token once in each epoch, cut at other places each time; `random`: windows that begin anywhere."""

    validation_windows: int | None = Field(default=None, ge=1)
    """Validate on this many windows, drawn once and for all, in place of the whole text: an estimate, but quick."""
