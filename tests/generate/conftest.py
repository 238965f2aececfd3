"""A model small enough to check by hand: a table of logits for each input row, looked up by the last two tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.generate.settings import GenerationConfig
from clearhead.generate.step import Hypothesis
from clearhead.generate.strategies import generate

BOS, EOS, BLANK = 0, 1, 2


class ToyState:
    """Which input row each row is, and all it was fed: a row that went on with another's state would be found out."""

    def __init__(self, identity: Tensor, fed: Tensor) -> None:
        self.identity = identity
        self.fed = fed

    def select(self, rows: Tensor) -> ToyState:
        return ToyState(self.identity[rows], self.fed[rows])


class Toy:
    """Different random logits for each input row."""

    def __init__(self, num_rows: int = 6, vocab: int = 8, seed: int = 0, sharpness: float = 1.5) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.table = sharpness * torch.randn(num_rows, vocab, vocab, vocab, generator=generator)
        self.rows_fed: list[int] = []

    def start(self, identity: Sequence[int]) -> ToyState:
        rows = torch.tensor(identity, dtype=torch.long)
        return ToyState(rows, torch.full((len(rows), 1), BOS))

    def step(self, ids: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
        assert len(ids) == len(state.identity)
        self.rows_fed.append(len(ids))
        # In place, as a key-value cache does it.
        state.fed = torch.cat((state.fed, ids[:, None]), 1)
        return self.table[state.identity, state.fed[:, -2], state.fed[:, -1]], state

    def run(self, config: GenerationConfig, identity: Sequence[int] | None = None, **more: Any) -> list[Any]:
        rows = list(range(len(self.table))) if identity is None else list(identity)
        options: dict[str, Any] = {"max_lens": [9] * len(rows), "row_keys": rows, "forbidden_ids": (BOS, BLANK)}
        options |= {"bos_id": BOS, "eos_id": EOS} | more
        return generate(self.step, self.start(rows), len(rows), config, **options)

    def log_probs(self, identity: int, hypothesis: Hypothesis) -> list[float]:
        """What the tokens of a hypothesis cost, asked one at a time."""
        fed = [BOS, BOS, *hypothesis.ids]
        said = [*hypothesis.ids, EOS] if hypothesis.finished else list(hypothesis.ids)
        return [
            float(self.table[identity, fed[at], fed[at + 1]].log_softmax(0)[token]) for at, token in enumerate(said)
        ]


@pytest.fixture(scope="session")
def toy() -> type[Toy]:
    """The class itself: tests make their own."""
    return Toy
