"""What all torch models share: a lane in which they take turns, and a way to give up rows in the middle of a batch.

They take turns because a head that is switched off while somebody looks is off for everyone, and because two that
compute at once on the same cores only get in each other's way.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from clearhead.serve.backends import Lane, Watch
from clearhead.text.specials import EOS_ID

LANE = Lane("torch")
Loaded = TypeVar("Loaded")


class Placed(NamedTuple):
    """A model's state that knows which row of the batch each of its rows comes from."""

    state: Any
    place: Tensor

    def select(self, rows: Tensor) -> Placed:
        """These rows, in this order."""
        return Placed(self.state.select(rows), self.place[rows])


class Leaving:
    """A model whose rows end at the next step when nobody waits for them any more; to a search it is the model."""

    def __init__(self, model: Any, watch: Watch) -> None:
        self.config = model.config
        self._model = model
        self._watch = watch

    def start(self, ids: Tensor, *rest: Any) -> Placed:
        """What generation carries from step to step."""
        return Placed(self._model.start(ids, *rest), torch.arange(len(ids), device=ids.device))

    def step(self, ids: Tensor, state: Placed) -> tuple[Tensor, Placed]:
        """The logits of the next tokens; for rows that are unwanted, only the end is possible."""
        logits, after = self._model.step(ids, state.state)
        unwanted = self._watch.unwanted()
        if unwanted:
            ends = torch.isin(state.place, torch.tensor(unwanted, device=state.place.device))
            logits = logits.masked_fill(ends[:, None], -torch.inf)
            logits[ends, EOS_ID] = 0.0
        return logits, Placed(after, state.place)


def leaving(loaded: Loaded, watch: Watch) -> Loaded:
    """The same model, but that rows that are unwanted by now end at its next step."""
    same: Any = copy.copy(loaded)
    # What a search asks of a model is `start`, `step` and `config`.
    same.model = Leaving(same.model, watch)
    return same
