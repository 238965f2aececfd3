"""A search in, the best of several paths followed side by side out: the twin of `clearhead.generate.beam`, in numpy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clearhead.engines.hypotheses import Choice, Paths, Pool, Search, State, Steps
from clearhead.engines.ranking import Doubles, Flags, Floats, Ids, best_few
from clearhead.text.specials import EOS_ID

GREEDY = 1


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


def beam(search: Search, state: State) -> Steps:
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
        rows, tokens = np.concatenate((ended.row, kept.row)), np.concatenate((ended.token, kept.token))
        yield Choice(paths.origin, paths.history, paths.total, log_probs, rows, tokens)
        is_stopped = search.is_stopped(paths, kept.row, kept.token)
        stopped, kept = kept.at(np.flatnonzero(is_stopped)), kept.at(np.flatnonzero(~is_stopped))
        pool.stop(paths, stopped.row, stopped.token, stopped.log_prob)
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
    is_open = pool.count[origin] < search.config.enough
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
    is_open = pool.count[candidates.origin] < search.config.enough
    return (is_open | candidates.is_greedy) & (np.maximum(soonest, latest) > pool.bar[candidates.origin])
