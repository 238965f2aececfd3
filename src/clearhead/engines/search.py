"""A step function over numpy arrays in, hypotheses out: what `clearhead.generate` does with tensors, without torch.

The two give the same results: the tests hold one against the other, and what is explained there is not repeated here.
A new strategy is one generator of choices that returns the results, and one line in STRATEGIES.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from clearhead.engines.beam import beam
from clearhead.engines.drawing import draw, filtered
from clearhead.engines.hypotheses import Choice, Paths, Pool, Results, Search, State, Step, Steps, Stop
from clearhead.engines.ranking import Floats, Ids
from clearhead.engines.rules import FORBIDDEN, Limits
from clearhead.errors import choose
from clearhead.generate.chance import Chances
from clearhead.generate.settings import GenerationConfig
from clearhead.text.specials import BOS_ID, EOS_ID


def generate(
    step: Step,
    state: State,
    config: GenerationConfig,
    *,
    max_lens: Sequence[int],
    repeats_allowed: Sequence[int],
    guard_span: int,
    row_keys: Sequence[int],
    first_ids: Sequence[int] | None = None,
    forbidden_ids: Sequence[int] = FORBIDDEN,
    stop: Stop | None = None,
    watch: Callable[[Choice], None] | None = None,
) -> Results:
    """The `nbest` hypotheses of each row, best first; the rest of the batch does not change a row's.

    `first_ids` is what rows are fed first, <s> unless given. `stop` ends a hypothesis by what it has said. `watch` is
    called after each step.
    """
    steps = searching(
        step,
        state,
        config,
        max_lens=max_lens,
        repeats_allowed=repeats_allowed,
        guard_span=guard_span,
        row_keys=row_keys,
        first_ids=first_ids,
        forbidden_ids=forbidden_ids,
        stop=stop,
    )
    while True:
        try:
            choice = next(steps)
        except StopIteration as end:
            results: Results = end.value
            return results
        if watch is not None:
            watch(choice)


def searching(
    step: Step,
    state: State,
    config: GenerationConfig,
    *,
    max_lens: Sequence[int],
    repeats_allowed: Sequence[int],
    guard_span: int,
    row_keys: Sequence[int],
    first_ids: Sequence[int] | None = None,
    forbidden_ids: Sequence[int] = FORBIDDEN,
    stop: Stop | None = None,
) -> Steps:
    """`generate` as it goes: what was chosen in each step is yielded, the results are returned."""
    search = Search(
        step=step,
        config=config,
        max_lens=np.asarray(max_lens, np.int64),
        limits=Limits(np.asarray(repeats_allowed, np.int64), guard_span, tuple(forbidden_ids)),
        row_keys=tuple(row_keys),
        first_ids=np.asarray([BOS_ID] * len(max_lens) if first_ids is None else first_ids, np.int64),
        stop=stop,
    )
    return (yield from choose(STRATEGIES, config.strategy, "strategy")(search, state))


def greedy(search: Search, state: State) -> Steps:
    """The likeliest token each time."""
    return _walk(search, Paths.start(search.inputs, search.inputs, state), _likeliest)


def _likeliest(log_probs: Floats, paths: Paths) -> Ids:
    return log_probs.argmax(-1)


def sample(search: Search, state: State) -> Steps:
    """Draw each next token from the model's filtered distribution; `nbest` draws that many samples."""
    config, copies = search.config, search.config.nbest
    origin = search.inputs.repeat(copies)
    number = np.tile(np.arange(copies), len(search.inputs))
    paths = Paths.start(origin, number, state if copies == 1 else state.select(origin))
    if config.temperature == 0:
        return _walk(search, paths, _likeliest)
    chances = Chances(config.seed, search.row_keys, copies)

    def pick(log_probs: Floats, paths: Paths) -> Ids:
        return draw(filtered(log_probs, config), chances.at(paths.length)[paths.origin, paths.label])

    return _walk(search, paths, pick)


def _walk(search: Search, paths: Paths, pick: Callable[[Floats, Paths], Ids]) -> Steps:
    pool = Pool(search)
    while len(paths):
        log_probs, state = search.next_log_probs(paths)
        tokens = pick(log_probs, paths)
        chosen = np.take_along_axis(log_probs, tokens[:, None], 1)[:, 0]
        ends, full = tokens == EOS_ID, search.is_full(paths)
        rows = np.flatnonzero(ends | ~full)
        yield Choice(paths.origin, paths.history, paths.total, log_probs, rows, tokens[rows])
        done = np.flatnonzero(ends)
        pool.finish(paths, done, chosen[done])
        pool.cut(paths, np.flatnonzero(full & ~ends))
        rows = np.flatnonzero(~ends & ~full)
        stopped = search.is_stopped(paths, rows, tokens[rows])
        told, rows = rows[stopped], rows[~stopped]
        pool.stop(paths, told, tokens[told], chosen[told])
        paths = paths.extend(rows, tokens[rows], chosen[rows], paths.label[rows], state)
    return pool.best()


STRATEGIES: dict[str, Callable[[Search, State], Steps]] = {"greedy": greedy, "beam": beam, "sample": sample}
