"""A trained model and the name of a split in, batches of that split out, to try the model on again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from clearhead.data.batches import BatchConfig, fixed_parts
from clearhead.data.examples import Batch, Examples
from clearhead.data.labelled import LabelledBatch, framed
from clearhead.data.pictures import PictureExamples
from clearhead.errors import UsageError
from clearhead.models import Model
from clearhead.run.classifying import LoadedClassifier
from clearhead.run.filling import LoadedBert
from clearhead.run.guessing import documents_to_guess
from clearhead.run.judging import ToJudge, texts_to_judge
from clearhead.run.seeing import LoadedVit, pictures_to_score
from clearhead.run.tasks import TASKS
from clearhead.run.using import load

TOKENS = 8192
"""What a batch holds, padding included."""
BATCH = BatchConfig(max_tokens=4096)
"""The same where most of it is answers, whose logits take room."""

Item = TypeVar("Item")


class ToTry(NamedTuple):
    """A model, and batches as it is used with."""

    model: Model
    batches: list[Batch]
    has_learnt: bool
    """Whether the model has learnt which tokens to drop."""


def to_try(path: Path, split: str, limit: int | None = None) -> ToTry:
    """A model whose tokens may become fewer, and examples of a split that its training config names or holds out."""
    loaded = load(path, "cpu")
    if type(loaded) not in BATCHES:
        kind = loaded.model.config.kind
        if hasattr(loaded, "reduce"):
            raise UsageError(
                f"{path} is a {kind}, whose answers are not just right or wrong: use clearhead score --reduce merge"
            )
        raise UsageError(f"{path} is a {kind}, whose tokens cannot become fewer: use clearhead {TASKS[kind].verb}")
    thresholds = [name for name in loaded.model.state_dict() if name.endswith("reduction.threshold")]
    return ToTry(loaded.model, BATCHES[type(loaded)](loaded, path, split, limit), bool(thresholds))


def evenly(items: Sequence[Item], count: int) -> list[Item]:
    """So many of them, evenly spaced.

    >>> evenly("abcdefg", 3), evenly("ab", 5)
    (['a', 'c', 'e'], ['a', 'b'])
    """
    count = min(count, len(items))
    return [items[place * len(items) // count] for place in range(count)]


def in_batches(examples: Examples, limit: int | None = None) -> list[Batch]:
    """All examples in batches, or so many of them, evenly spaced."""
    if limit is None or limit >= len(examples):
        return [part.batch for part in fixed_parts(examples, BATCH)]
    rows = np.arange(limit) * len(examples) // limit
    most = max(1, BATCH.max_tokens // int(examples.lengths[rows].max()))
    return [examples.batch(rows[first : first + most], None) for first in range(0, limit, most)]


def picture_batches(loaded: LoadedVit, examples: PictureExamples) -> list[Batch]:
    """Labelled pictures in batches."""
    size = max(1, TOKENS // loaded.model.config.num_tokens)
    return [
        examples.batch(np.arange(first, min(first + size, len(examples))), None)
        for first in range(0, len(examples), size)
    ]


def text_batches(loaded: LoadedClassifier, given: ToJudge) -> list[Batch]:
    """Labelled texts in batches, from short to long; the pieces of a long one stay together."""
    encoded = loaded.tokenizers.source.encode_batch([text.strip() for text in given.texts])
    pieces = [loaded.long_texts.pieces(np.array(ids)) for ids in encoded]
    longest = [max(len(piece) for piece in row) + 2 for row in pieces]
    order = sorted(range(len(pieces)), key=lambda row: (longest[row], row))
    batches, start = [], 0
    while start < len(order):
        end, count = start, 0
        while end < len(order) and (end == start or (count + len(pieces[order[end]])) * longest[order[end]] <= TOKENS):
            count += len(pieces[order[end]])
            end += 1
        batches.append(_batch(pieces, given.labels, order[start:end]))
        start = end
    return batches


def _batch(pieces: Sequence[Sequence[Any]], labels: Sequence[int], rows: Sequence[int]) -> Batch:
    ids, lengths = framed([piece for row in rows for piece in pieces[row]])
    owners = np.repeat(np.arange(len(rows)), [len(pieces[row]) for row in rows])
    return LabelledBatch(
        ids,
        lengths,
        np.array([labels[row] for row in rows], dtype=np.int64),
        None if len(owners) == len(rows) else owners,
        np.array(rows, dtype=np.int64),
    )


BATCHES: dict[type, Callable[[Any, Path, str, int | None], list[Batch]]] = {
    LoadedVit: lambda loaded, path, split, limit: picture_batches(
        loaded, pictures_to_score(loaded, path, split, limit=limit)
    ),
    LoadedClassifier: lambda loaded, path, split, limit: text_batches(
        loaded, texts_to_judge(loaded, path, {}, split, limit)
    ),
    LoadedBert: lambda loaded, path, split, limit: in_batches(
        documents_to_guess(loaded, path, None, split, "--split validation"), limit
    ),
}
"""Where the batches come from, by what a model is used through."""
