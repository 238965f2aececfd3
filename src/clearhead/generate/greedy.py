"""A search in, one path for each row out: at each step the likeliest token, or whatever else a `pick` picks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from jaxtyping import Float, Int
from torch import Tensor

from clearhead.generate.ranking import best
from clearhead.generate.search import Paths, Pool, Search, Steps
from clearhead.generate.step import Choice, State

Pick: TypeAlias = Callable[[Tensor, Paths], Tensor]
"""Log-probabilities of the next tokens and the paths they continue in, one token for each path out."""


def greedy(search: Search, state: State) -> Steps:
    """The likeliest token each time."""
    return walk(search, Paths.start(search.inputs, search.inputs, state), likeliest)


def likeliest(log_probs: Float[Tensor, "rows vocab"], paths: Paths) -> Int[Tensor, "rows"]:
    """The likeliest token of each row; of equals, the first."""
    return best(log_probs)


def walk(search: Search, paths: Paths, pick: Pick) -> Steps:
    """Follow each path, one picked token at a time, and take it out of the batch when it ends or is full."""
    pool = Pool(search)
    while len(paths):
        log_probs, state = search.next_log_probs(paths)
        tokens = pick(log_probs, paths)
        chosen = log_probs.gather(1, tokens[:, None])[:, 0]
        ends, full = tokens == search.eos_id, search.is_full(paths)
        rows = (ends | ~full).nonzero()[:, 0]
        yield Choice(paths.origin, paths.history, paths.total, log_probs, rows, tokens[rows])
        done = ends.nonzero()[:, 0]
        pool.finish(paths, done, chosen[done])
        pool.cut(paths, (full & ~ends).nonzero()[:, 0])
        rows = (~ends & ~full).nonzero()[:, 0]
        stopped = search.is_stopped(paths, rows, tokens[rows])
        told = rows[stopped]
        pool.stop(paths, told, tokens[told], chosen[told])
        rows = rows[~stopped]
        paths = paths.extend(rows, tokens[rows], chosen[rows], paths.label[rows], state)
    return pool.best()
