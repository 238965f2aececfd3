"""Histories in, log-probabilities with minus infinity at what may not come next out.

A new constraint is one class and one line in CONSTRAINTS: `wanted` builds it from the settings, or says None when they
ask for nothing; `ban` writes into the log-probabilities in place. `</s>` stays possible where all else is forbidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.generate.repeats import MAX_BLOCK as MAX_BLOCK
from clearhead.generate.repeats import MAX_REPEATS as MAX_REPEATS
from clearhead.generate.repeats import count_repeats as count_repeats
from clearhead.generate.settings import GenerationConfig

NEVER = -torch.inf


@dataclass(frozen=True)
class Limits:
    """What constraints know beyond the settings."""

    eos_id: int
    forbidden_ids: tuple[int, ...]
    repeats_allowed: Int[Tensor, "inputs"]
    """How often in a row a phrase may come, for each input row; never less than MAX_REPEATS."""
    guard_span: int
    """The fewest repeated tokens, all repetitions together, that make a loop."""


@runtime_checkable
class Constraint(Protocol):
    """Something that forbids tokens."""

    @classmethod
    def wanted(cls, config: GenerationConfig, limits: Limits) -> Constraint | None:
        """The constraint these settings ask for, if any."""

    def ban(
        self,
        log_probs: Float[Tensor, "rows vocab"],
        history: Int[Tensor, "rows time"],
        origin: Int[Tensor, "rows"],
    ) -> None:
        """Write minus infinity where a token may not follow a row's history; `origin` is the row's input row."""


class Forbidden:
    """Tokens that are never produced, such as padding and the unknown word."""

    def __init__(self, ids: Sequence[int], device: torch.device) -> None:
        self.ids = torch.tensor(ids, dtype=torch.long, device=device)

    @classmethod
    def wanted(cls, config: GenerationConfig, limits: Limits) -> Forbidden | None:
        return cls(limits.forbidden_ids, limits.repeats_allowed.device) if limits.forbidden_ids else None

    def ban(
        self,
        log_probs: Float[Tensor, "rows vocab"],
        history: Int[Tensor, "rows time"],
        origin: Int[Tensor, "rows"],
    ) -> None:
        log_probs.index_fill_(1, self.ids, NEVER)


class MinLength:
    """No end before a result has `min_len` tokens."""

    def __init__(self, min_len: int, eos_id: int) -> None:
        self.min_len = min_len
        self.eos_id = eos_id

    @classmethod
    def wanted(cls, config: GenerationConfig, limits: Limits) -> MinLength | None:
        return cls(config.min_len, limits.eos_id) if config.min_len else None

    def ban(
        self,
        log_probs: Float[Tensor, "rows vocab"],
        history: Int[Tensor, "rows time"],
        origin: Int[Tensor, "rows"],
    ) -> None:
        if history.shape[1] < self.min_len:
            log_probs[:, self.eos_id] = NEVER


class NoRepeatNgram:
    """No sequence of `size` tokens comes twice in one result."""

    def __init__(self, size: int) -> None:
        self.size = size

    @classmethod
    def wanted(cls, config: GenerationConfig, limits: Limits) -> NoRepeatNgram | None:
        return cls(config.no_repeat_ngram) if config.no_repeat_ngram else None

    def ban(
        self,
        log_probs: Float[Tensor, "rows vocab"],
        history: Int[Tensor, "rows time"],
        origin: Int[Tensor, "rows"],
    ) -> None:
        length = history.shape[1]
        if length < self.size:
            return
        seen = history.unfold(1, self.size, 1)
        tail = history[:, length - self.size + 1 :]
        row, place = (seen[:, :, :-1] == tail[:, None]).all(-1).nonzero(as_tuple=True)
        log_probs[row, seen[row, place, -1]] = NEVER


class LoopGuard:
    """No phrase of up to `max_block` tokens comes more than `repeats` times in a row ("salad salad salad").

    The token that would complete one repetition too many is forbidden. Where tokens are letters or bytes, short runs
    are normal ("0000000"): `span` is the fewest repeated tokens, all repetitions together, that make a loop.
    """

    def __init__(self, repeats: Int[Tensor, "inputs"], span: int) -> None:
        self.repeats = repeats.clamp(min=MAX_REPEATS)
        self.span = span
        self.max_block = max(MAX_BLOCK, 2 * span)

    @classmethod
    def wanted(cls, config: GenerationConfig, limits: Limits) -> LoopGuard | None:
        return cls(limits.repeats_allowed, limits.guard_span) if config.loop_guard else None

    def ban(
        self,
        log_probs: Float[Tensor, "rows vocab"],
        history: Int[Tensor, "rows time"],
        origin: Int[Tensor, "rows"],
    ) -> None:
        length = history.shape[1]
        if length < MAX_REPEATS:
            return
        recent = history.flip(1)
        blocks = torch.arange(1, min(self.max_block + 1, length), device=history.device)
        # With one more token the tail would be a loop if its newest `needed` tokens all equal those a block earlier.
        loop = ((self.repeats[origin, None] + 1) * blocks).clamp(min=self.span)
        needed = loop - blocks - 1
        suspect = (recent[:, :1] == recent[:, 1 : len(blocks) + 1]) & (needed <= length - blocks)
        row, which = suspect.nonzero(as_tuple=True)
        if len(row) == 0:
            return
        block, needed = blocks[which], needed[row, which]
        back = torch.arange(int(needed.max()), device=history.device)
        earlier = (back + block[:, None]).clamp(max=length - 1)
        same = recent[row[:, None], back] == recent[row[:, None], earlier]
        loops = (same | (back >= needed[:, None])).all(1)
        log_probs[row[loops], recent[row[loops], block[loops] - 1]] = NEVER


def constrain(
    constraints: Sequence[Constraint],
    log_probs: Float[Tensor, "rows vocab"],
    history: Int[Tensor, "rows time"],
    origin: Int[Tensor, "rows"],
    eos_id: int,
) -> None:
    """Apply all constraints in place; a row with nothing left may still end."""
    end = log_probs[:, eos_id].clamp(min=torch.finfo(log_probs.dtype).min)
    for constraint in constraints:
        constraint.ban(log_probs, history, origin)
    # Few steps forbid the end, and a row that may end is not stuck: the whole vocabulary is searched only for the rest.
    endless = log_probs[:, eos_id].isneginf().nonzero()[:, 0]
    if len(endless):
        stuck = endless[log_probs[endless].amax(1).isneginf()]
        log_probs[stuck, eos_id] = end[stuck]


CONSTRAINTS: dict[str, type[Constraint]] = {
    "forbidden": Forbidden,
    "min_length": MinLength,
    "no_repeat_ngram": NoRepeatNgram,
    "loop_guard": LoopGuard,
}
