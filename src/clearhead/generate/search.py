"""A step function and its limits in, hypotheses under way (`Paths`) and done (`Pool`) out: what strategies share."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clearhead.errors import DivergedError
from clearhead.generate.constraints import Constraint, constrain
from clearhead.generate.settings import GenerationConfig
from clearhead.generate.step import Choice, Hypothesis, State, Step, Stop

Results: TypeAlias = list[list[Hypothesis]]
Steps: TypeAlias = Generator[Choice, None, Results]
"""A search as it runs: one Choice each step, the results at the end."""


@dataclass(frozen=True)
class Paths:
    """The hypotheses under way, one for each row of the batch; those of one input row stand together.

    A path never changes: going on makes new ones, so whoever watches may keep what it was shown.
    """

    origin: Int[Tensor, "rows"]
    """Which input row a path belongs to."""
    label: Int[Tensor, "rows"]
    """A strategy's own note on each path."""
    history: Int[Tensor, "rows time"]
    token_log_probs: Float[Tensor, "rows time"]
    total: Float[Tensor, "rows"]
    """Sums of token_log_probs, in double precision: small differences count even after many tokens."""
    state: State

    @staticmethod
    def start(origin: Int[Tensor, "rows"], label: Int[Tensor, "rows"], state: State) -> Paths:
        """Paths that have said nothing yet."""
        rows = len(origin)
        history = origin.new_empty(rows, 0)
        return Paths(origin, label, history, history.float(), history.double().sum(1), state)

    def __len__(self) -> int:
        return len(self.origin)

    @property
    def length(self) -> int:
        """How many tokens each path has said."""
        return self.history.shape[1]

    def extend(
        self,
        rows: Int[Tensor, "kept"],
        tokens: Int[Tensor, "kept"],
        log_probs: Float[Tensor, "kept"],
        label: Int[Tensor, "kept"],
        state: State,
    ) -> Paths:
        """The paths at these rows, each with one more token; `state` is the model's after its step over all rows."""
        return Paths(
            origin=self.origin[rows],
            label=label,
            history=torch.cat((self.history[rows], tokens[:, None]), 1),
            token_log_probs=torch.cat((self.token_log_probs[rows], log_probs[:, None]), 1),
            total=self.total[rows] + log_probs.double(),
            state=state if _is_everything(rows, len(self)) else state.select(rows),
        )


def _is_everything(rows: Int[Tensor, "kept"], count: int) -> bool:
    # Selecting copies all that a model carries; nothing is carried on when no row is left.
    return len(rows) == 0 or torch.equal(rows, torch.arange(count, device=rows.device))


@dataclass(frozen=True)
class Search:
    """What there is to search: a model's step, and what limits the results."""

    step: Step
    config: GenerationConfig
    first_ids: Int[Tensor, "inputs"]
    """What each input row is fed first: <s>, or the last token of its prompt."""
    eos_id: int
    max_lens: Int[Tensor, "inputs"]
    row_keys: tuple[int, ...]
    constraints: tuple[Constraint, ...]
    stop: Stop | None = None

    @property
    def inputs(self) -> Int[Tensor, "inputs"]:
        """The numbers of the input rows."""
        return torch.arange(len(self.max_lens), device=self.max_lens.device)

    def next_log_probs(self, paths: Paths) -> tuple[Float[Tensor, "rows vocab"], State]:
        """One step of the model: the log-probabilities of each path's next token, with minus infinity where forbidden.

        They are normalised before anything is forbidden, so they stay the model's own.
        """
        ids = paths.history[:, -1] if paths.length else self.first_ids[paths.origin]
        logits, state = self.step(ids, paths.state)
        log_probs = logits.float().log_softmax(-1)
        # One column tells: a NaN or plus infinity anywhere in a row makes the whole row NaN.
        broken = log_probs[:, self.eos_id].isnan()
        if broken.any():
            text = self.row_keys[int(paths.origin[broken][0])] + 1
            raise DivergedError(
                f"the model gives numbers that are not finite for token {paths.length + 1} of text {text:,}: "
                "its weights are damaged, or need a higher precision"
            )
        constrain(self.constraints, log_probs, paths.history, paths.origin, self.eos_id)
        return log_probs, state

    def is_full(self, paths: Paths) -> Bool[Tensor, "rows"]:
        """True for paths that may only end now."""
        return paths.length >= self.max_lens[paths.origin]

    def is_stopped(self, paths: Paths, rows: Int[Tensor, "kept"], tokens: Int[Tensor, "kept"]) -> Bool[Tensor, "kept"]:
        """True where a path that goes on with a token is told to end right after it."""
        if self.stop is None:
            return torch.zeros_like(rows, dtype=torch.bool)
        said = torch.cat((paths.history[rows], tokens[:, None]), 1).tolist()
        return torch.tensor([self.stop(ids) for ids in said], dtype=torch.bool, device=rows.device)


class Pool:
    """The hypotheses that are done, and the bar a new one must beat."""

    def __init__(self, search: Search) -> None:
        self._config = search.config
        self._done: Results = [[] for _ in range(len(search.max_lens))]
        self.count = torch.zeros_like(search.max_lens)
        """How many hypotheses of each input row are finished."""
        self.bar = torch.full_like(search.max_lens, -torch.inf, dtype=torch.double)
        """The score a finished hypothesis must beat to be among the `nbest` of its input row."""

    def finish(self, paths: Paths, rows: Int[Tensor, "kept"], log_probs: Float[Tensor, "kept"]) -> None:
        """Add the paths at these rows, ended by a </s> of these log-probabilities."""
        ends = zip(_rows(paths, rows), log_probs.tolist(), strict=True)
        self._finish([(origin, ids, [*spent, end]) for (origin, ids, spent), end in ends])

    def stop(
        self, paths: Paths, rows: Int[Tensor, "kept"], tokens: Int[Tensor, "kept"], log_probs: Float[Tensor, "kept"]
    ) -> None:
        """Add the paths at these rows with one more token, after which they were told to end."""
        ends = zip(_rows(paths, rows), tokens.tolist(), log_probs.tolist(), strict=True)
        self._finish([(origin, [*ids, token], [*spent, end]) for (origin, ids, spent), token, end in ends])

    def _finish(self, ended: list[tuple[int, list[int], list[float]]]) -> None:
        for origin, ids, token_log_probs in ended:
            self._done[origin].append(self._hypothesis(ids, token_log_probs, finished=True))
        if ended:
            self._raise_bars(sorted({origin for origin, _, _ in ended}))

    def _raise_bars(self, origins: list[int]) -> None:
        nbest = self._config.nbest
        scores = [sorted((one.score for one in self._done[origin] if one.finished), reverse=True) for origin in origins]
        places = torch.tensor(origins, device=self.count.device)
        self.count[places] = self.count.new_tensor([len(row) for row in scores])
        self.bar[places] = self.bar.new_tensor([row[nbest - 1] if len(row) >= nbest else -torch.inf for row in scores])

    def cut(self, paths: Paths, rows: Int[Tensor, "kept"]) -> None:
        """Add the paths at these rows, which reached the longest length without an end."""
        for origin, ids, spent in _rows(paths, rows):
            self._done[origin].append(self._hypothesis(ids, spent, finished=False))

    def best(self) -> Results:
        """The `nbest` different hypotheses of each input row, best first: finished before cut, then by score."""
        return [_different(sorted(row, key=_rank))[: self._config.nbest] for row in self._done]

    def _hypothesis(self, ids: list[int], token_log_probs: list[float], finished: bool) -> Hypothesis:
        total = sum(token_log_probs, 0.0)
        score = total / max(len(token_log_probs), 1) ** self._config.length_penalty
        return Hypothesis(tuple(ids), total, score, tuple(token_log_probs), finished)


def _rows(paths: Paths, rows: Int[Tensor, "kept"]) -> list[tuple[int, list[int], list[float]]]:
    if len(rows) == 0:
        return []
    columns = (paths.origin, paths.history, paths.token_log_probs)
    return list(zip(*(column[rows].tolist() for column in columns), strict=True))


def _rank(hypothesis: Hypothesis) -> tuple[bool, float]:
    return not hypothesis.finished, -hypothesis.score


def _different(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    return list({one.ids: one for one in reversed(hypotheses)}.values())[::-1]
