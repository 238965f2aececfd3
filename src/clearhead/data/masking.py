"""The tokens of a text in, which of them are asked for and what a model sees in their place out.

As in BERT: of the tokens that are asked for, 80 % are hidden, 10 % replaced by others, 10 % left as they are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data.chance import shares
from clearhead.data.examples import Integers
from clearhead.text import SPECIALS

ASKED = 0.15
"""The share of tokens that are asked for, unless the user says otherwise."""
HIDDEN, REPLACED = 0.8, 0.1


class Masked(NamedTuple):
    """One text as a model sees it; every array has one entry per token."""

    ids: NDArray[np.int64]
    """Some replaced by others."""
    hidden: NDArray[np.bool_]
    """Which the model does not see."""
    asked: NDArray[np.bool_]
    """Which it is to name: the hidden, the replaced, and some more."""


def num_asked(lengths: Integers, share: float) -> NDArray[np.int64]:
    """How many tokens of texts of these lengths are asked for: a share, and at least one."""
    return np.maximum(1, np.round(share * np.asarray(lengths)).astype(np.int64))


def masked(
    ids: Integers,
    count: int,
    begins: Integers | None,
    order: NDArray[np.uint64],
    form: NDArray[np.uint64],
    vocab_size: int,
) -> Masked:
    """Ask for `count` tokens; `order` and `form` are random bits, one number for each token.

    `begins` is 1 where a word begins: words are then asked for whole, but for the last, of which only as much as the
    count leaves room for.
    """
    if begins is None:
        keys = order[: len(ids)]
    else:
        words = np.cumsum(begins.astype(np.int64))
        words -= words[0]
        keys = order[words]
    # Stable, so that the tokens of a word, which have one key, stay together.
    chosen = np.argsort(keys, kind="stable")[:count]
    asked = np.zeros(len(ids), dtype=np.bool_)
    asked[chosen] = True
    chance = shares(form[: len(ids)])
    hidden = asked & (chance < HIDDEN)
    replaced = asked & ~hidden & (chance < HIDDEN + REPLACED)
    seen = np.asarray(ids, dtype=np.int64).copy()
    # The low bits: the high ones have just decided the form.
    others = len(SPECIALS) + (form[: len(ids)] & np.uint64(0xFFFFFFFF)).astype(np.int64) % (vocab_size - len(SPECIALS))
    seen[replaced] = others[replaced]
    return Masked(seen, hidden, asked)
