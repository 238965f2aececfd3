"""What batches are planned from and made of: the two faces that every kind of data shows, and what chance follows from.

A new kind of data is one class with the members of `Examples`; planning, dealing out and resuming come with it. If it
can tell where in the user's data an example came from, it has a `where` as well.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.integer[Any]]


class Draw(NamedTuple):
    """What chance follows from, with an example's number: so a batch does not depend on who makes it, or when."""

    seed: int
    epoch: int


class Batch(Protocol):
    """Some examples as padded arrays; an objective knows its own kind of batch."""

    @property
    def num_answers(self) -> int:
        """How many answers the batch asks for; the loss is a mean over these."""


class Examples(Protocol):
    """All examples of a split, each by its number from 0; what is known of every one is an array."""

    def __len__(self) -> int: ...

    @property
    def lengths(self) -> Integers:
        """What each counts against `max_tokens` when it stands among others as long, control tokens included."""

    @property
    def sort_keys(self) -> tuple[Integers, ...]:
        """What puts similar ones together, the weightiest last as in `lexsort`; empty if all are of one length."""

    @property
    def answers(self) -> Integers:
        """How many answers the loss counts in each, known beforehand so that processes can share a step."""

    @property
    def work(self) -> Integers:
        """How much computing each is, in any unit: a step is shared out evenly by it."""

    def batch(self, rows: Integers, draw: Draw | None) -> Batch:
        """Some of them as a batch; without a draw, for validation, nothing is left to chance and all is as ever."""


@runtime_checkable
class Traceable(Protocol):
    """Examples that know where they came from."""

    def where(self, row: int) -> str:
        """The place of an example in the user's data, for messages."""


def where(examples: Examples, row: int) -> str:
    """The place of an example, for messages; its number, from 1, where nothing else is known."""
    return examples.where(row) if isinstance(examples, Traceable) else f"example {row + 1:,}"
