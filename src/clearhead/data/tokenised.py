"""Texts and a tokenizer in, token ids in memory-mapped files out: like a corpus of pairs, they are cached.

Each text keeps the number it has in its survey and a tag: its label, or the document it is a part of.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data import columns
from clearhead.data.columns import ColumnWriter, read_columns
from clearhead.data.corpus import Sentences, SideWriter, cache_key, cache_root, sentences_of
from clearhead.data.examples import Integers
from clearhead.errors import DataError, MissingInputError, StorageError
from clearhead.text import Tokenizer

CHUNK = 1024

Tagged = tuple[int, int, str]
"""A number, a tag, a text."""


class TokenisedTexts(NamedTuple):
    """Texts as token ids, without control tokens; the ids stay on the disk until they are looked at."""

    sentences: Sentences
    tags: NDArray[np.int64]
    numbers: NDArray[np.int64]
    begins: Sentences | None
    """For each token 1 if a word begins with it, where that was asked for."""

    @property
    def lengths(self) -> NDArray[np.int32]:
        """How many tokens each text has."""
        return self.sentences.lengths

    def subset(self, indices: Integers) -> TokenisedTexts:
        """Some of the texts, over the same ids."""
        begins = None if self.begins is None else self.begins.subset(indices)
        return TokenisedTexts(self.sentences.subset(indices), self.tags[indices], self.numbers[indices], begins)

    @classmethod
    def open(cls, directory: Path) -> TokenisedTexts:
        """Map stored texts into memory, after checking that they are whole."""
        arrays = read_columns(directory).arrays
        begins = sentences_of(arrays["begins"], arrays["offsets"]) if "begins" in arrays else None
        return cls(sentences_of(arrays["ids"], arrays["offsets"]), arrays["tags"], arrays["numbers"], begins)


def texts_key(content: str, tokenizer: Tokenizer, *, with_words: bool = False) -> str:
    """The name of tokenised texts in the cache; `content` stands for what is tokenised."""
    form = f"format {columns.FORMAT_VERSION}"
    return cache_key("tokenised texts", content, tokenizer.fingerprint(), form, f"words {with_words}")


def tokenising_texts(
    content: str,
    texts: Callable[[], Iterable[Tagged]],
    tokenizer: Tokenizer,
    *,
    with_words: bool = False,
    root: Path | None = None,
) -> Generator[int, None, TokenisedTexts]:
    """Open cached texts, or tokenise them: how many have been read is yielded, the texts are returned."""
    directory = (root or cache_root()) / texts_key(content, tokenizer, with_words=with_words)
    with contextlib.suppress(MissingInputError, StorageError):
        return TokenisedTexts.open(directory)
    dtypes = {"ids": tokenizer.id_type, "offsets": "<i8", "tags": "<i8", "numbers": "<i8"}
    done = 0
    with ColumnWriter(directory, {**dtypes, **({"begins": "u1"} if with_words else {})}) as writer:
        side = SideWriter(writer)
        rest = iter(texts())
        while chunk := list(itertools.islice(rest, CHUNK)):
            rows = _packed(tokenizer, chunk)
            sizes = np.fromiter(map(len, rows), dtype="<i4", count=len(rows)) // np.dtype(tokenizer.id_type).itemsize
            side.append(b"".join(rows), sizes.astype("<i4").tobytes())
            for column, place in (("numbers", 0), ("tags", 1)):
                writer.append(column, np.array([row[place] for row in chunk], dtype="<i8").tobytes())
            if with_words:
                writer.append("begins", b"".join(_begins(tokenizer, row) for row in rows))
            done += len(chunk)
            yield done
        writer.finish({})
    return TokenisedTexts.open(directory)


def _packed(tokenizer: Tokenizer, chunk: list[Tagged]) -> list[bytes]:
    try:
        return tokenizer.pack([text for _, _, text in chunk])
    except DataError:
        for number, _, text in chunk:
            try:
                tokenizer.encode(text)
            except DataError as error:
                raise DataError(f"text {number + 1:,}: {error}") from None
        raise


def _begins(tokenizer: Tokenizer, row: bytes) -> bytes:
    words = np.array(tokenizer.words(np.frombuffer(row, dtype=tokenizer.id_type)), dtype=np.int64)
    return np.concatenate([[1], np.diff(words) != 0]).astype("u1").tobytes()[: len(words)]
