"""A step function, a starting state and settings in, the best hypotheses of each row out.

A new strategy is one generator of choices that returns the results, one line in STRATEGIES, and its name in `settings`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

from clearhead.errors import choose
from clearhead.generate.beam import beam
from clearhead.generate.constraints import CONSTRAINTS, MAX_REPEATS, Constraint, Limits
from clearhead.generate.greedy import greedy
from clearhead.generate.sampling import sample
from clearhead.generate.search import Results, Search, Steps
from clearhead.generate.settings import GenerationConfig
from clearhead.generate.step import Choice, State, Step, Stop

Strategy: TypeAlias = Callable[[Search, State], Steps]


@torch.no_grad()
def generate(
    step: Step,
    state: State,
    num_rows: int,
    config: GenerationConfig,
    *,
    bos_id: int | Sequence[int],
    eos_id: int,
    max_lens: Sequence[int],
    forbidden_ids: Sequence[int] = (),
    row_keys: Sequence[int] | None = None,
    repeats_allowed: Sequence[int] | None = None,
    guard_span: int = 1,
    stop: Stop | None = None,
    device: torch.device | str = "cpu",
    watch: Callable[[Choice], None] | None = None,
) -> Results:
    """The `nbest` hypotheses of each of `num_rows` rows, best first; the rest of the batch does not change a row's.

    `bos_id` is what rows are fed first: one id for all, or one for each, such as the last token of its prompt.
    `max_lens` and `repeats_allowed` (for the loop guard) hold one number for each row. `row_keys` names the rows for
    sampling: a row draws the same wherever it stands if its key is the same. `stop` ends a hypothesis by what it has
    said. `watch` is called after each step.
    """
    steps = searching(
        step,
        state,
        num_rows,
        config,
        bos_id=bos_id,
        eos_id=eos_id,
        max_lens=max_lens,
        forbidden_ids=forbidden_ids,
        row_keys=row_keys,
        repeats_allowed=repeats_allowed,
        guard_span=guard_span,
        stop=stop,
        device=device,
    )
    while True:
        try:
            choice = next(steps)
        except StopIteration as end:
            return end.value
        if watch is not None:
            watch(choice)


@torch.no_grad()
def searching(
    step: Step,
    state: State,
    num_rows: int,
    config: GenerationConfig,
    *,
    bos_id: int | Sequence[int],
    eos_id: int,
    max_lens: Sequence[int],
    forbidden_ids: Sequence[int] = (),
    row_keys: Sequence[int] | None = None,
    repeats_allowed: Sequence[int] | None = None,
    guard_span: int = 1,
    stop: Stop | None = None,
    device: torch.device | str = "cpu",
) -> Steps:
    """`generate` as it goes: what was chosen in each step is yielded, the results are returned."""
    first_ids = [bos_id] * num_rows if isinstance(bos_id, int) else bos_id
    allowed = [MAX_REPEATS] * num_rows if repeats_allowed is None else repeats_allowed
    limits = Limits(eos_id, tuple(forbidden_ids), _per_row(allowed, num_rows, device), guard_span)
    search = Search(
        step=step,
        config=config,
        first_ids=_per_row(first_ids, num_rows, device),
        eos_id=eos_id,
        max_lens=_per_row(max_lens, num_rows, device),
        row_keys=tuple(range(num_rows) if row_keys is None else row_keys),
        constraints=_constraints(config, limits),
        stop=stop,
    )
    return (yield from choose(STRATEGIES, config.strategy, "strategy")(search, state))


def _per_row(numbers: Sequence[int], num_rows: int, device: torch.device | str) -> torch.Tensor:
    if len(numbers) != num_rows:
        raise ValueError(f"{num_rows} rows need as many numbers, not {len(numbers)}")
    return torch.tensor(numbers, dtype=torch.long, device=device)


def _constraints(config: GenerationConfig, limits: Limits) -> tuple[Constraint, ...]:
    made = (kind.wanted(config, limits) for kind in CONSTRAINTS.values())
    return tuple(constraint for constraint in made if constraint is not None)


STRATEGIES: dict[str, Strategy] = {"greedy": greedy, "beam": beam, "sample": sample}
