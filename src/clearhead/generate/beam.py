"""A search in, the best of several paths followed side by side out.

The paths of all input rows stand in one flat batch with no empty places: an input row has one path at first, up to
`beam_size` later, and none once it is decided. Its greedy path is never dropped, even where better ones crowd it out of
the beam: a beam alone may end up below greedy, and this way, for at most one row more, it cannot.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clearhead.generate.ranking import best_few
from clearhead.generate.search import Paths, Pool, Search, Steps
from clearhead.generate.step import Choice, State

GREEDY = 1


class Candidates(NamedTuple):
    """Continuations of paths by one token: all of one input row together, its likeliest first."""

    origin: Int[Tensor, "candidates"]
    row: Int[Tensor, "candidates"]
    """The path it continues, as a place in the batch."""
    token: Int[Tensor, "candidates"]
    log_prob: Float[Tensor, "candidates"]
    total: Float[Tensor, "candidates"]
    is_greedy: Bool[Tensor, "candidates"]

    def where(self, chosen: Bool[Tensor, "candidates"]) -> Candidates:
        """Only these."""
        return self.at(chosen.nonzero()[:, 0])

    def at(self, places: Int[Tensor, "kept"]) -> Candidates:
        """Those at these places, in this order."""
        return Candidates(*(column[places] for column in self))


def beam(search: Search, state: State) -> Steps:
    """Keep the `beam_size` likeliest paths at each step, until no other path can be among the `nbest`."""
    paths = Paths.start(search.inputs, torch.full_like(search.inputs, GREEDY), state)
    pool = Pool(search)
    while len(paths):
        log_probs, state = search.next_log_probs(paths)
        candidates = rank(paths, log_probs, search.config.beam_size)
        ends, goes_on = _choose(search, pool, candidates)
        full = search.is_full(paths)
        ended = candidates.where(ends)
        pool.finish(paths, ended.row, ended.log_prob)
        pool.cut(paths, full.index_fill(0, ended.row, False).nonzero()[:, 0])
        may_win = _may_win(search, pool, candidates, paths.length + 1)
        kept = candidates.where(goes_on & may_win & ~full[candidates.row])
        rows, tokens = torch.cat((ended.row, kept.row)), torch.cat((ended.token, kept.token))
        yield Choice(paths.origin, paths.history, paths.total, log_probs, rows, tokens)
        is_stopped = search.is_stopped(paths, kept.row, kept.token)
        stopped, kept = kept.where(is_stopped), kept.where(~is_stopped)
        pool.stop(paths, stopped.row, stopped.token, stopped.log_prob)
        paths = paths.extend(kept.row, kept.token, kept.log_prob, kept.is_greedy.long(), state)
    return pool.best()


def rank(paths: Paths, log_probs: Float[Tensor, "rows vocab"], beam_size: int) -> Candidates:
    """The candidates that matter: of each path the `beam_size` likeliest tokens and one, as one of them may be </s>."""
    # Not all pairs of a path and a token have to be compared: no more than these can be among its row's best.
    values, tokens = best_few(log_probs, beam_size + 1)
    total = (paths.total[:, None] + values.double()).flatten()
    row = torch.arange(len(paths), device=tokens.device).repeat_interleave(tokens.shape[1])
    is_greedy = torch.zeros_like(tokens, dtype=torch.bool)
    is_greedy[:, 0] = paths.label == GREEDY
    order = total.argsort(descending=True, stable=True)
    order = order[paths.origin[row[order]].argsort(stable=True)]
    ranked = Candidates(paths.origin[row], row, tokens.flatten(), values.flatten(), total, is_greedy.flatten())
    return ranked.at(order)


def _choose(
    search: Search, pool: Pool, candidates: Candidates
) -> tuple[Bool[Tensor, "candidates"], Bool[Tensor, "candidates"]]:
    """Which end now and which may go on; an end counts only if it is among the `beam_size` best of all."""
    beam_size, origin = search.config.beam_size, candidates.origin
    is_open = pool.count[origin] < search.config.enough
    is_end = candidates.token == search.eos_id
    among_all = _count_before(torch.ones_like(is_end), origin) < beam_size
    among_going_on = _count_before(~is_end, origin) < beam_size
    is_possible = ~candidates.total.isneginf()
    return (
        is_possible & is_end & (is_open & among_all | candidates.is_greedy),
        is_possible & ~is_end & (is_open & among_going_on | candidates.is_greedy),
    )


def _count_before(flags: Bool[Tensor, "candidates"], origin: Int[Tensor, "candidates"]) -> Int[Tensor, "candidates"]:
    """For each candidate, how many flagged ones of the same input row stand before it."""
    before = flags.cumsum(0) - flags.long()
    return before - before[torch.searchsorted(origin, origin)]


def _may_win(search: Search, pool: Pool, candidates: Candidates, length: int) -> Bool[Tensor, "candidates"]:
    """True where a path of this length can still come to be among the `nbest` of its input row.

    A row stops when `enough` of its paths are finished, but for its greedy path. A path's log-probability only falls,
    and its score changes in one direction with its length: the soonest and the latest end bound what is to come.
    """
    penalty = search.config.length_penalty
    soonest = candidates.total / (length + 1) ** penalty
    latest = candidates.total / (search.max_lens[candidates.origin] + 1).double() ** penalty
    is_open = pool.count[candidates.origin] < search.config.enough
    return (is_open | candidates.is_greedy) & (torch.maximum(soonest, latest) > pool.bar[candidates.origin])
