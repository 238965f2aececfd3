"""A step function and its limits in, hypotheses under way (`Paths`) and done (`Pool`) out: what strategies share.

The twin of `clearhead.generate.search`, in numpy: what is explained there is not repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from clearhead.engines.ranking import Doubles, Flags, Floats, Ids, log_softmax
from clearhead.engines.rules import Limits, constrain
from clearhead.errors import DivergedError
from clearhead.generate.hypothesis import Hypothesis
from clearhead.generate.settings import GenerationConfig
from clearhead.text.specials import EOS_ID


class State(Protocol):
    """What a model carries from step to step, one row for each hypothesis."""

    def select(self, rows: Ids) -> State:
        """A state that holds these rows, in this order; repeats are allowed."""


Step: TypeAlias = Callable[[Ids, Any], tuple[Floats, State]]
"""The newest token of each row and the state in, the logits of the next one and the state after it out."""
Stop: TypeAlias = Callable[[Sequence[int]], bool]
"""Whether what a hypothesis has said so far, its newest token last, is to end here; asked after each token."""

Unwanted: TypeAlias = Callable[[], Collection[int]]
"""Which rows nobody waits for any more."""


def nobody() -> Collection[int]:
    """All rows are waited for."""
    return ()


def ended(logits: Floats, ends: Flags) -> Floats:
    """Logits with which the rows that are marked can only end."""
    if not ends.any():
        return logits
    only = np.where(ends[:, None], np.float32(-np.inf), logits)
    only[ends, EOS_ID] = 0.0
    return only


class Choice(NamedTuple):
    """What a search saw and chose in one step, for whoever watches: the twin of `clearhead.generate.step.Choice`."""

    origin: Ids
    history: Ids
    total: Doubles
    log_probs: Floats
    rows: Ids
    tokens: Ids


Results: TypeAlias = list[list[Hypothesis]]
Steps: TypeAlias = Generator[Choice, None, Results]
"""A search as it runs: one Choice each step, the results at the end."""


@dataclass(frozen=True)
class Paths:
    """The hypotheses under way, one for each row of the batch; those of one input row stand together."""

    origin: Ids
    label: Ids
    history: Ids
    token_log_probs: Floats
    total: Doubles
    state: State

    @staticmethod
    def start(origin: Ids, label: Ids, state: State) -> Paths:
        """Paths that have said nothing yet."""
        rows = len(origin)
        nothing = np.empty((rows, 0), np.int64)
        return Paths(origin, label, nothing, nothing.astype(np.float32), np.zeros(rows), state)

    def __len__(self) -> int:
        return len(self.origin)

    @property
    def length(self) -> int:
        """How many tokens each path has said."""
        return self.history.shape[1]

    def extend(self, rows: Ids, tokens: Ids, log_probs: Floats, label: Ids, state: State) -> Paths:
        """The paths at these rows, each with one token more; `state` is the model's after its step over all rows."""
        is_everything = len(rows) == 0 or np.array_equal(rows, np.arange(len(self)))
        return Paths(
            origin=self.origin[rows],
            label=label,
            history=np.concatenate((self.history[rows], tokens[:, None]), 1),
            token_log_probs=np.concatenate((self.token_log_probs[rows], log_probs[:, None]), 1),
            total=self.total[rows] + log_probs.astype(np.float64),
            state=state if is_everything else state.select(rows),
        )


@dataclass(frozen=True)
class Search:
    """What there is to search: a model's step, and what limits the results."""

    step: Step
    config: GenerationConfig
    max_lens: Ids
    limits: Limits
    row_keys: tuple[int, ...]
    first_ids: Ids
    """What each input row is fed first: <s>, or the last token of its prompt."""
    stop: Stop | None = None

    @property
    def inputs(self) -> Ids:
        """The numbers of the input rows."""
        return np.arange(len(self.max_lens))

    def next_log_probs(self, paths: Paths) -> tuple[Floats, State]:
        """One step of the model: the log-probabilities of each path's next token, minus infinity where forbidden."""
        ids = paths.history[:, -1] if paths.length else self.first_ids[paths.origin]
        logits, state = self.step(ids, paths.state)
        log_probs = log_softmax(logits)
        broken = np.isnan(log_probs[:, EOS_ID])
        if broken.any():
            text = self.row_keys[int(paths.origin[broken][0])] + 1
            raise DivergedError(
                f"the model gives numbers that are not finite for token {paths.length + 1} of text {text:,}: "
                "the exported weights are damaged"
            )
        constrain(log_probs, paths.history, paths.origin, self.config, self.limits)
        return log_probs, state

    def is_full(self, paths: Paths) -> Flags:
        """True for paths that may only end now."""
        return paths.length >= self.max_lens[paths.origin]

    def is_stopped(self, paths: Paths, rows: Ids, tokens: Ids) -> Flags:
        """True where a path that goes on with a token is told to end right after it."""
        if self.stop is None:
            return np.zeros(len(rows), np.bool_)
        said = np.concatenate((paths.history[rows], tokens[:, None]), 1).tolist()
        return np.array([self.stop(ids) for ids in said], np.bool_)


class Pool:
    """The hypotheses that are done, and the bar a new one must beat."""

    def __init__(self, search: Search) -> None:
        self._config = search.config
        self._done: Results = [[] for _ in search.max_lens]
        self.count = np.zeros(len(search.max_lens), np.int64)
        self.bar = np.full(len(search.max_lens), -np.inf)

    def finish(self, paths: Paths, rows: Ids, log_probs: Floats) -> None:
        """Add the paths at these rows, ended by a </s> of these log-probabilities."""
        for row, end in zip(rows.tolist(), log_probs.tolist(), strict=True):
            self._finish(paths, row, [], end)

    def stop(self, paths: Paths, rows: Ids, tokens: Ids, log_probs: Floats) -> None:
        """Add the paths at these rows with one more token, after which they were told to end."""
        for row, token, end in zip(rows.tolist(), tokens.tolist(), log_probs.tolist(), strict=True):
            self._finish(paths, row, [token], end)

    def _finish(self, paths: Paths, row: int, last: list[int], log_prob: float) -> None:
        origin, nbest = int(paths.origin[row]), self._config.nbest
        ids, spent = [*paths.history[row].tolist(), *last], [*paths.token_log_probs[row].tolist(), log_prob]
        self._done[origin].append(hypothesis(ids, spent, self._config, finished=True))
        scores = sorted((one.score for one in self._done[origin] if one.finished), reverse=True)
        self.count[origin] = len(scores)
        self.bar[origin] = scores[nbest - 1] if len(scores) >= nbest else -np.inf

    def cut(self, paths: Paths, rows: Ids) -> None:
        """Add the paths at these rows, which reached the longest length without an end."""
        for row in rows.tolist():
            spent = paths.token_log_probs[row].tolist()
            cut = hypothesis(paths.history[row].tolist(), spent, self._config, finished=False)
            self._done[int(paths.origin[row])].append(cut)

    def best(self) -> Results:
        """The `nbest` different hypotheses of each input row, best first."""
        return [ranked(row)[: self._config.nbest] for row in self._done]


def hypothesis(
    ids: Sequence[int], token_log_probs: Sequence[float], config: GenerationConfig, *, finished: bool
) -> Hypothesis:
    """A result with its score."""
    total = sum(token_log_probs, 0.0)
    score = total / max(len(token_log_probs), 1) ** config.length_penalty
    return Hypothesis(tuple(ids), total, score, tuple(token_log_probs), finished)


def ranked(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Different ones, finished before cut, then by score."""
    ordered = sorted(hypotheses, key=lambda one: (not one.finished, -one.score))
    return list({one.ids: one for one in reversed(ordered)}.values())[::-1]
