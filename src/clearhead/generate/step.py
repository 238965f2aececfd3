"""What search asks of a model (`Step`, `State`), what it tells as it runs (`Choice`) and gives back (`Hypothesis`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from clearhead.generate.hypothesis import Hypothesis as Hypothesis

Stop: TypeAlias = Callable[[Sequence[int]], bool]
"""Whether what a hypothesis has said so far, its newest token last, is to end here; asked after each token."""


@runtime_checkable
class State(Protocol):
    """What a model carries from step to step, one row for each hypothesis; search never looks inside."""

    def select(self, rows: Int[Tensor, "kept"]) -> State:
        """A state that holds these rows, in this order; repeats are allowed."""


@runtime_checkable
class Step(Protocol):
    """Feed the newest token of each row; the logits of the next one and the state after it come back.

    The old state may be changed in place: search does not use it again. A logit of minus infinity means impossible.
    """

    def __call__(self, ids: Int[Tensor, "rows"], state: Any, /) -> tuple[Float[Tensor, "rows vocab"], State]: ...


@dataclass(frozen=True)
class Choice:
    """What a search saw and chose in one step, for whoever watches; enough to draw the tree of a beam.

    A hypothesis of which no continuation was chosen is dropped here, or was cut off at the longest length.
    """

    origin: Int[Tensor, "rows"]
    """Which input row each hypothesis belongs to."""
    history: Int[Tensor, "rows time"]
    """What each hypothesis has said so far."""
    total: Float[Tensor, "rows"]
    """The log-probability of what it has said."""
    log_probs: Float[Tensor, "rows vocab"]
    """The log-probability of each next token; minus infinity where it is forbidden."""
    rows: Int[Tensor, "chosen"]
    """The hypotheses that go on or end, as places in the tensors above ..."""
    tokens: Int[Tensor, "chosen"]
    """... and the token each goes on with, </s> where it ends."""
