"""A step function over numpy arrays in, hypotheses out: what `clearhead.generate` does with tensors, without torch.

The two give the same results: the tests hold one against the other, and what is explained there is not repeated here.
A new strategy is one function and one line in STRATEGIES.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from clearhead.engines.drawing import draw, filtered
from clearhead.engines.ranking import Doubles, Flags, Floats, Ids, best_few, log_softmax
from clearhead.engines.rules import Limits, constrain
from clearhead.errors import DivergedError, choose
from clearhead.generate.chance import uniform_numbers
from clearhead.generate.hypothesis import Hypothesis
from clearhead.generate.settings import GenerationConfig
from clearhead.text.specials import BOS_ID, EOS_ID

Results: TypeAlias = list[list[Hypothesis]]
GREEDY = 1


class State(Protocol):
    """What a model carries from step to step, one row for each hypothesis."""

    def select(self, rows: Ids) -> State:
        """A state that holds these rows, in this order; repeats are allowed."""


Step: TypeAlias = Callable[[Ids, Any], tuple[Floats, State]]
"""The newest token of each row and the state in, the logits of the next one and the state after it out."""


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

    @property
    def inputs(self) -> Ids:
        """The numbers of the input rows."""
        return np.arange(len(self.max_lens))

    def next_log_probs(self, paths: Paths) -> tuple[Floats, State]:
        """One step of the model: the log-probabilities of each path's next token, minus infinity where forbidden."""
        ids = paths.history[:, -1] if paths.length else np.full(len(paths), BOS_ID)
        logits, state = self.step(ids, paths.state)
        log_probs = log_softmax(logits)
        broken = np.isnan(log_probs[:, EOS_ID])
        if broken.any():
            raise DivergedError(
                f"the model gives numbers that are not finite for token {paths.length + 1} of input row "
                f"{int(paths.origin[broken][0])}: the exported weights are damaged"
            )
        constrain(log_probs, paths.history, paths.origin, self.config, self.limits)
        return log_probs, state

    def is_full(self, paths: Paths) -> Flags:
        """True for paths that may only end now."""
        return paths.length >= self.max_lens[paths.origin]


class Pool:
    """The hypotheses that are done, and the bar a new one must beat."""

    def __init__(self, search: Search) -> None:
        self._config = search.config
        self._done: Results = [[] for _ in search.max_lens]
        self.count = np.zeros(len(search.max_lens), np.int64)
        self.bar = np.full(len(search.max_lens), -np.inf)

    def finish(self, paths: Paths, rows: Ids, log_probs: Floats) -> None:
        """Add the paths at these rows, ended by a </s> of these log-probabilities."""
        nbest = self._config.nbest
        for row, end in zip(rows.tolist(), log_probs.tolist(), strict=True):
            origin = int(paths.origin[row])
            spent = [*paths.token_log_probs[row].tolist(), end]
            self._done[origin].append(hypothesis(paths.history[row].tolist(), spent, self._config, finished=True))
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


def generate(
    step: Step,
    state: State,
    config: GenerationConfig,
    *,
    max_lens: Sequence[int],
    repeats_allowed: Sequence[int],
    guard_span: int,
    row_keys: Sequence[int],
) -> Results:
    """The `nbest` hypotheses of each row, best first; the rest of the batch does not change a row's."""
    limits = Limits(np.asarray(repeats_allowed, np.int64), guard_span)
    search = Search(step, config, np.asarray(max_lens, np.int64), limits, tuple(row_keys))
    return choose(STRATEGIES, config.strategy, "strategy")(search, state)


# One path each -------------------------------------------------------------------------------------------------------


def greedy(search: Search, state: State) -> Results:
    """The likeliest token each time."""
    return _walk(search, Paths.start(search.inputs, search.inputs, state), _likeliest)


def _likeliest(log_probs: Floats, paths: Paths) -> Ids:
    return log_probs.argmax(-1)


def sample(search: Search, state: State) -> Results:
    """Draw each next token from the model's filtered distribution; `nbest` draws that many samples."""
    config, copies = search.config, search.config.nbest
    origin = search.inputs.repeat(copies)
    number = np.tile(np.arange(copies), len(search.inputs))
    paths = Paths.start(origin, number, state if copies == 1 else state.select(origin))
    if config.temperature == 0:
        return _walk(search, paths, _likeliest)
    steps = int(search.max_lens.max()) + 1 if len(search.max_lens) else 0
    numbers = uniform_numbers(config.seed, search.row_keys, copies, steps)

    def pick(log_probs: Floats, paths: Paths) -> Ids:
        return draw(filtered(log_probs, config), numbers[paths.origin, paths.label, paths.length])

    return _walk(search, paths, pick)


def _walk(search: Search, paths: Paths, pick: Callable[[Floats, Paths], Ids]) -> Results:
    pool = Pool(search)
    while len(paths):
        log_probs, state = search.next_log_probs(paths)
        tokens = pick(log_probs, paths)
        chosen = np.take_along_axis(log_probs, tokens[:, None], 1)[:, 0]
        ends, full = tokens == EOS_ID, search.is_full(paths)
        done = np.flatnonzero(ends)
        pool.finish(paths, done, chosen[done])
        pool.cut(paths, np.flatnonzero(full & ~ends))
        rows = np.flatnonzero(~ends & ~full)
        paths = paths.extend(rows, tokens[rows], chosen[rows], paths.label[rows], state)
    return pool.best()


# Several paths side by side ------------------------------------------------------------------------------------------


class Candidates(NamedTuple):
    """Continuations of paths by one token: all of one input row together, its likeliest first."""

    origin: Ids
    row: Ids
    token: Ids
    log_prob: Floats
    total: Doubles
    is_greedy: Flags

    def at(self, places: Ids) -> Candidates:
        """Those at these places, in this order."""
        return Candidates(*(column[places] for column in self))  # type: ignore[arg-type]


def beam(search: Search, state: State) -> Results:
    """Keep the `beam_size` likeliest paths at each step, until no other path can be among the `nbest`."""
    paths = Paths.start(search.inputs, np.full(len(search.inputs), GREEDY), state)
    pool = Pool(search)
    while len(paths):
        log_probs, state = search.next_log_probs(paths)
        candidates = _rank(paths, log_probs, search.config.beam_size)
        ends, goes_on = _choose(search, pool, candidates)
        full = search.is_full(paths)
        ended = candidates.at(np.flatnonzero(ends))
        pool.finish(paths, ended.row, ended.log_prob)
        cut = full.copy()
        cut[ended.row] = False
        pool.cut(paths, np.flatnonzero(cut))
        may_win = _may_win(search, pool, candidates, paths.length + 1)
        kept = candidates.at(np.flatnonzero(goes_on & may_win & ~full[candidates.row]))
        paths = paths.extend(kept.row, kept.token, kept.log_prob, kept.is_greedy.astype(np.int64), state)
    return pool.best()


def _rank(paths: Paths, log_probs: Floats, beam_size: int) -> Candidates:
    values, tokens = best_few(log_probs, beam_size + 1)
    total = (paths.total[:, None] + values.astype(np.float64)).ravel()
    row = np.arange(len(paths)).repeat(tokens.shape[1])
    is_greedy = np.zeros_like(tokens, dtype=np.bool_)
    is_greedy[:, 0] = paths.label == GREEDY
    order = np.argsort(-total, kind="stable")
    order = order[np.argsort(paths.origin[row[order]], kind="stable")]
    everything = Candidates(paths.origin[row], row, tokens.ravel(), values.ravel(), total, is_greedy.ravel())
    return everything.at(order)


def _choose(search: Search, pool: Pool, candidates: Candidates) -> tuple[Flags, Flags]:
    beam_size, origin = search.config.beam_size, candidates.origin
    is_open = pool.count[origin] < beam_size
    is_end = candidates.token == EOS_ID
    among_all = _count_before(np.ones_like(is_end), origin) < beam_size
    among_going_on = _count_before(~is_end, origin) < beam_size
    is_possible = ~np.isneginf(candidates.total)
    return (
        is_possible & is_end & (is_open & among_all | candidates.is_greedy),
        is_possible & ~is_end & (is_open & among_going_on | candidates.is_greedy),
    )


def _count_before(flags: Flags, origin: Ids) -> Ids:
    before = flags.cumsum() - flags
    return before - before[np.searchsorted(origin, origin)]


def _may_win(search: Search, pool: Pool, candidates: Candidates, length: int) -> Flags:
    penalty = search.config.length_penalty
    soonest = candidates.total / float(length + 1) ** penalty
    latest = candidates.total / (search.max_lens[candidates.origin] + 1).astype(np.float64) ** penalty
    is_open = pool.count[candidates.origin] < search.config.beam_size
    return (is_open | candidates.is_greedy) & (np.maximum(soonest, latest) > pool.bar[candidates.origin])


STRATEGIES: dict[str, Callable[[Search, State], Results]] = {"greedy": greedy, "beam": beam, "sample": sample}
