"""Labelled texts in, a linear classifier over words and pairs of neighbouring words out: what a Transformer must beat.

Naive Bayes weighs each word and pair by how much more often it occurs with a label than without, and a logistic
regression over these weights is fitted (after Wang and Manning 2012): minutes on a CPU, and hard to beat on small data.
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from clearhead.errors import DataError

MOST_FEATURES = 1 << 22
"""Words and pairs are told apart by a hash of so many values."""
LEAST_TEXTS = 2
"""What occurs in fewer texts is left out."""
STRENGTH = 1.0
"""How much the data count against the wish for small weights."""
ROUNDS = 40

# A Chinese or Japanese character, a word with its apostrophes, or a mark: "not good!" is more than "not good".
_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_]+(?:['’][^\W_]+)*|[^\w\s]")


def words(text: str) -> list[str]:
    """The words and marks of a text, in small letters.

    >>> words("Don't STOP, 我们!")
    ["don't", 'stop', ',', '我', '们', '!']
    """
    return _WORDS.findall(text.lower())


def features(text: str) -> NDArray[np.int64]:
    """The hashes of the different words and pairs of a text."""
    found = words(text)
    both = [*found, *map(" ".join, itertools.pairwise(found))]
    return np.fromiter({zlib.crc32(one.encode()) % MOST_FEATURES for one in both}, dtype=np.int64)


class Bags(NamedTuple):
    """The features of many texts end to end; each text has at least one, the first, which all have."""

    ids: Int[Tensor, "ids"]
    starts: Int[Tensor, "texts"]


class Baseline:
    """A fitted linear classifier."""

    def __init__(self, places: NDArray[np.int64], weights: Float[Tensor, "features labels"]) -> None:
        self._places, self._weights = places, weights

    @classmethod
    def fit(
        cls, texts: Iterable[str], labels: Sequence[int], num_labels: int, progress: Callable[[int], None] | None = None
    ) -> Baseline:
        """Learn from texts and the places of their labels; `progress` hears how many texts have been read."""
        found = list(_counted(texts, progress))
        if len(found) != len(labels):
            raise DataError(f"{len(found)} texts do not match {len(labels)} labels: one each is needed")
        seen = np.bincount(np.concatenate(found), minlength=MOST_FEATURES) if found else np.zeros(MOST_FEATURES)
        known = np.flatnonzero(seen >= LEAST_TEXTS)
        # The first feature is one that every text has; a place of 0 is one that is not known.
        places = np.zeros(MOST_FEATURES, dtype=np.int64)
        places[known] = np.arange(1, len(known) + 1)
        bags = _bags(found, places)
        truth = torch.as_tensor(np.asarray(labels, dtype=np.int64))
        weighed = _bayes(bags, truth, len(known) + 1, num_labels)
        return cls(places, weighed * _fitted(bags, truth, weighed))

    def probabilities(
        self, texts: Iterable[str], progress: Callable[[int], None] | None = None
    ) -> NDArray[np.floating[Any]]:
        """A row for each text, a column for each label."""
        bags = _bags(list(_counted(texts, progress)), self._places)
        return _logits(bags, self._weights).softmax(-1).numpy()


def _counted(texts: Iterable[str], progress: Callable[[int], None] | None) -> Iterator[NDArray[np.int64]]:
    for number, text in enumerate(texts, start=1):
        yield features(text)
        if progress is not None:
            progress(number)


def _bags(found: Sequence[NDArray[np.int64]], places: NDArray[np.int64]) -> Bags:
    rows = []
    for row in found:
        known = places[row]
        rows.append(np.concatenate([[0], known[known > 0]]))
    sizes = np.array([len(row) for row in rows], dtype=np.int64)
    ids = np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)
    return Bags(torch.from_numpy(ids), torch.from_numpy(np.cumsum(sizes) - sizes))


def _logits(bags: Bags, weights: Float[Tensor, "features labels"]) -> Float[Tensor, "texts labels"]:
    return F.embedding_bag(bags.ids, weights, bags.starts, mode="sum")


def _bayes(
    bags: Bags, truth: Int[Tensor, "texts"], num_features: int, num_labels: int
) -> Float[Tensor, "features labels"]:
    """For each feature and label the logarithm of how much likelier it is with the label than without."""
    sizes = torch.diff(bags.starts, append=torch.tensor([len(bags.ids)]))
    owners = torch.repeat_interleave(truth, sizes)
    with_label = torch.bincount(bags.ids * num_labels + owners, minlength=num_features * num_labels)
    with_label = with_label.view(num_features, num_labels).float()
    without = with_label.sum(1, keepdim=True) - with_label
    ratio = _shares(with_label).log() - _shares(without).log()
    # What every text has tells nothing, and is a plain bias.
    ratio[0] = 1.0
    return ratio


def _shares(counts: Float[Tensor, "features labels"]) -> Float[Tensor, "features labels"]:
    return (counts + 1) / (counts + 1).sum(0)


def _fitted(
    bags: Bags, truth: Int[Tensor, "texts"], weighed: Float[Tensor, "features labels"]
) -> Float[Tensor, "features labels"]:
    """The logistic regression over features that are already weighed, by a quasi-Newton method."""
    fitted = torch.zeros_like(weighed, requires_grad=True)
    optimizer = torch.optim.LBFGS([fitted], max_iter=ROUNDS, history_size=8, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        misfit = F.cross_entropy(_logits(bags, weighed * fitted), truth, reduction="sum")
        loss = (STRENGTH * misfit + fitted[1:].square().sum() / 2) / len(truth)
        loss.backward()
        return loss

    optimizer.step(closure)
    return fitted.detach()
