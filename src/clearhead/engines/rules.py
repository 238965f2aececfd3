"""Histories in, log-probabilities with minus infinity at what may not come next out, in numpy.

Each rule is the twin of a constraint in `clearhead.generate.constraints`, where it is explained; the tests hold one
against the other. A new rule is one function and one line in RULES.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from clearhead.engines.ranking import Floats, Ids
from clearhead.generate.repeats import MAX_BLOCK, MAX_REPEATS
from clearhead.generate.settings import GenerationConfig
from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID, UNK_ID

NEVER = -np.inf
FORBIDDEN = (BOS_ID, PAD_ID, UNK_ID)


@dataclass(frozen=True)
class Limits:
    """What rules know beyond the settings."""

    repeats_allowed: Ids
    """How often in a row a phrase may come, for each input row; never less than MAX_REPEATS."""
    guard_span: int
    """The fewest repeated tokens, all repetitions together, that make a loop."""
    forbidden_ids: tuple[int, ...] = FORBIDDEN
    """What is never said."""


Rule: TypeAlias = Callable[[Floats, Ids, Ids, GenerationConfig, Limits], None]
"""Log-probabilities, histories, the input row of each, settings and limits in; what may not come is put to NEVER."""


def forbidden(log_probs: Floats, history: Ids, origin: Ids, config: GenerationConfig, limits: Limits) -> None:
    """Padding, the beginning and the unknown word are never said; and no end where a text has none."""
    log_probs[:, limits.forbidden_ids] = NEVER


def min_length(log_probs: Floats, history: Ids, origin: Ids, config: GenerationConfig, limits: Limits) -> None:
    """No end before a result has `min_len` tokens."""
    if history.shape[1] < config.min_len:
        log_probs[:, EOS_ID] = NEVER


def no_repeat_ngram(log_probs: Floats, history: Ids, origin: Ids, config: GenerationConfig, limits: Limits) -> None:
    """No sequence of so many tokens comes twice in one result."""
    size, length = config.no_repeat_ngram, history.shape[1]
    if not size or length < size:
        return
    seen = np.lib.stride_tricks.sliding_window_view(history, size, axis=1)
    tail = history[:, length - size + 1 :]
    row, place = (seen[:, :, :-1] == tail[:, None]).all(-1).nonzero()
    log_probs[row, seen[row, place, -1]] = NEVER


def loop_guard(log_probs: Floats, history: Ids, origin: Ids, config: GenerationConfig, limits: Limits) -> None:
    """No phrase comes more often in a row than the source allows."""
    length = history.shape[1]
    if not config.loop_guard or length < MAX_REPEATS:
        return
    recent = history[:, ::-1]
    repeats = np.maximum(limits.repeats_allowed, MAX_REPEATS)
    blocks = np.arange(1, min(max(MAX_BLOCK, 2 * limits.guard_span) + 1, length))
    loop = np.maximum((repeats[origin, None] + 1) * blocks, limits.guard_span)
    needed = loop - blocks - 1
    row, which = ((recent[:, :1] == recent[:, 1 : len(blocks) + 1]) & (needed <= length - blocks)).nonzero()
    if len(row) == 0:
        return
    block, needed = blocks[which], needed[row, which]
    back = np.arange(needed.max())
    earlier = np.minimum(back + block[:, None], length - 1)
    same = recent[row[:, None], back] == recent[row[:, None], earlier]
    loops = (same | (back >= needed[:, None])).all(1)
    log_probs[row[loops], recent[row[loops], block[loops] - 1]] = NEVER


def constrain(log_probs: Floats, history: Ids, origin: Ids, config: GenerationConfig, limits: Limits) -> None:
    """Apply all rules in place; a row with nothing left may still end."""
    end = np.maximum(log_probs[:, EOS_ID], np.finfo(log_probs.dtype).min)
    for rule in RULES.values():
        rule(log_probs, history, origin, config, limits)
    endless = np.flatnonzero(np.isneginf(log_probs[:, EOS_ID]))
    if len(endless):
        stuck = endless[np.isneginf(log_probs[endless].max(1))]
        log_probs[stuck, EOS_ID] = end[stuck]


RULES: dict[str, Rule] = {
    "forbidden": forbidden,
    "min_length": min_length,
    "no_repeat_ngram": no_repeat_ngram,
    "loop_guard": loop_guard,
}
