"""A model at work in, what became of each of its tokens layer by layer out: alone, in another, or dropped.

What heads look at after tokens have become fewer is told in terms of the tokens that came in, so that it can be drawn
on the words or the picture they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from clearhead.inspection.record import Tape
from clearhead.nn.stacks import Block
from clearhead.nn.tokens import Tokens


@dataclass
class Trail:
    """Where the tokens that came in were after each layer, since following began; of padding it knows nothing."""

    holders: list[Int[Tensor, "batch input"]] = field(default_factory=list)
    """After each layer the token that each is in, counted from 0; -1 if it was dropped, or is padding."""

    def before(self, layer: int) -> Int[Tensor, "batch input"]:
        """Where the tokens were when a layer looked at them."""
        if layer:
            return self.holders[layer - 1]
        batch, count = self.holders[0].shape
        return torch.arange(count).expand(batch, count)

    def left(self, row: int = 0) -> list[int]:
        """How many tokens there were after each layer."""
        return [len(holder[row][holder[row] >= 0].unique()) for holder in self.holders]

    def dropped(self, row: int = 0) -> list[list[int]]:
        """For each layer the tokens that were dropped in it."""
        found = []
        for layer, holder in enumerate(self.holders):
            gone = (holder[row] < 0) & (self.before(layer)[row] >= 0)
            found.append(gone.nonzero()[:, 0].tolist())
        return found

    def groups(self, layer: int, row: int = 0) -> list[list[int]]:
        """The tokens that came in, as they were together after a layer."""
        holder = self.holders[layer][row].tolist()
        held: dict[int, list[int]] = {}
        for token, place in enumerate(holder):
            if place >= 0:
                held.setdefault(place, []).append(token)
        return list(held.values())


@contextmanager
def following(model: nn.Module) -> Iterator[Trail]:
    """Note where tokens go, in every layer of a model's encoder, for the length of a `with` block."""
    trail = Trail()

    def note(module: nn.Module, inputs: tuple[Any, ...], tokens: Tokens) -> None:
        holder = tokens.holder
        if holder is None:
            holder = torch.arange(tokens.x.shape[1], device=tokens.x.device).expand(tokens.x.shape[:2])
            holder = holder if tokens.real is None else torch.where(tokens.real, holder, -1)
        trail.holders.append(holder.detach().cpu())

    # What a block hands on, and not what its reduction does: a layer that is switched off hands on all it was given.
    # Those that look across at an encoder are none of it.
    blocks = [part for part in model.modules() if isinstance(part, Block) and part.cross is None]
    hooks = [block.register_forward_hook(note) for block in blocks]
    try:
        yield trail
    finally:
        for hook in hooks:
            hook.remove()


def on_inputs(
    weights: Float[Tensor, "heads query key"], holder: Int[Tensor, "input"]
) -> Float[Tensor, "heads input input"]:
    """What heads looked at, told of the tokens that came in.

    Each looks as the token does that it is in, and gets its even share of what that one gets. One that was dropped
    neither looks nor is looked at.
    """
    return at_inputs(weights, holder)[:, holder.clamp(min=0)] * (holder >= 0)[:, None]


def at_inputs(
    weights: Float[Tensor, "heads query key"], holder: Int[Tensor, "input"]
) -> Float[Tensor, "heads query input"]:
    """The same where only what is looked at has become fewer."""
    there = holder >= 0
    place = holder.clamp(min=0)
    sizes = torch.bincount(place[there], minlength=weights.shape[2])
    return (weights / sizes.clamp(min=1).to(weights))[:, :, place] * there


def told_of_inputs(tape: Tape, trail: Trail) -> None:
    """Let every look of a tape of one sequence be about the tokens that came in, as if none had become fewer.

    An encoder's layers look at what the one before handed on, a decoder at what the last one did.
    """
    for place, look in enumerate(tape.looks):
        if look.kind == "encoder":
            holder = trail.before(look.layer)[0].to(look.weights.device)
            there = holder >= 0
            allowed = (there[:, None] & there[None, :])[None, None]
            tape.looks[place] = look._replace(weights=on_inputs(look.weights[0], holder)[None], allowed=allowed)
        elif look.kind == "cross":
            holder = trail.holders[-1][0].to(look.weights.device)
            allowed = (holder >= 0)[None, None, None, :]
            tape.looks[place] = look._replace(weights=at_inputs(look.weights[0], holder)[None], allowed=allowed)


def rollout(tape: Tape, trail: Trail, kind: str = "encoder", row: int = 0) -> Float[Tensor, "input input"] | None:
    """Where each token's content came from after all layers, as `measures.rollout` says, also where tokens are fewer.

    A token that goes into another is from then on the mean of all that are in there; one that is dropped stays as it
    was. None if there are no layers.
    """
    rolled = None
    for look in tape.of(kind):
        looked = on_inputs(look.weights[row].double().cpu(), trail.before(look.layer)[row]).mean(0)
        own = torch.eye(len(looked), dtype=looked.dtype)
        looks = looked.sum(-1, keepdim=True) > 0
        mixed = torch.where(looks, (own + looked) / 2, own)
        mixed = mixed if rolled is None else mixed @ rolled
        for group in trail.groups(look.layer, row):
            mixed[group] = mixed[group].mean(0)
        rolled = mixed
    return rolled
