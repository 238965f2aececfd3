"""Scores of a whole vocabulary in, log-probabilities or the few best tokens out, in numpy."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ids: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]

BLOCK = 64


def log_softmax(logits: Floats) -> Floats:
    """Log-probabilities of logits (rows, vocab); a row that is not finite becomes NaN."""
    with np.errstate(invalid="ignore"):
        shifted = logits - logits.max(-1, keepdims=True)
        shifted -= np.log(np.exp(shifted).sum(-1, keepdims=True))
    return shifted


def best_few(scores: Floats, count: int) -> tuple[Floats, Ids]:
    """The `count` best scores of each row and their tokens, best first; of equals at the top, the first token.

    The largest value of a block is found many times faster than its place, and the best `count` tokens stand in the
    best `count` blocks: only those are searched.
    """
    rows, vocab = scores.shape
    count = min(count, vocab)
    if vocab < 4 * count * BLOCK:
        tokens = np.argpartition(scores, vocab - count, axis=1)[:, vocab - count :]
        values = np.take_along_axis(scores, tokens, 1)
    else:
        whole = vocab // BLOCK * BLOCK
        maxima = scores[:, :whole].reshape(rows, whole // BLOCK, BLOCK).max(-1)
        if whole < vocab:
            maxima = np.concatenate((maxima, scores[:, whole:].max(-1, keepdims=True)), axis=1)
        blocks = np.argpartition(maxima, maxima.shape[1] - count, axis=1)[:, maxima.shape[1] - count :]
        places = (np.sort(blocks)[:, :, None] * BLOCK + np.arange(BLOCK)).reshape(rows, count * BLOCK)
        # What a short block lacks is minus infinity.
        inside = np.where(places < vocab, np.take_along_axis(scores, np.minimum(places, vocab - 1), 1), -np.inf)
        chosen = np.argpartition(inside, inside.shape[1] - count, axis=1)[:, inside.shape[1] - count :]
        # Where hardly any token may come, places that a short block lacks are chosen: its last token stands for them.
        tokens = np.minimum(np.take_along_axis(places, chosen, 1), vocab - 1)
        values = np.take_along_axis(inside, chosen, 1)
    order = np.lexsort((tokens, -values), axis=1)
    values, tokens = np.take_along_axis(values, order, 1), np.take_along_axis(tokens, order, 1)
    # Partitions leave equals out as they like: at the top, the first token of all counts.
    for row in np.flatnonzero((values[:, :1] == values[:, 1:2]).all(1)):
        first = int(scores[row].argmax())
        tokens[row] = [first, *(tokens[row, 0] if token == first else token for token in tokens[row, 1:])]
    return values, tokens
