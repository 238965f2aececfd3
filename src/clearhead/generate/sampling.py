"""A search in, paths drawn at random out: the same (seed, row key, sample, step) always draws with the same number.

A new filter is one function that says which tokens may be drawn, a setting that turns it on, and one line in FILTERS
under that setting's name. Filters apply in the table's order, each to what the ones before it left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clearhead.generate.chance import Chances
from clearhead.generate.greedy import likeliest, walk
from clearhead.generate.search import Paths, Search, Steps
from clearhead.generate.settings import GenerationConfig
from clearhead.generate.step import State

Filter: TypeAlias = Callable[[Tensor, Any], Tensor]
HEAD = 1024


def sample(search: Search, state: State) -> Steps:
    """Draw each next token from the model's filtered distribution; `nbest` draws that many samples."""
    config, copies = search.config, search.config.nbest
    origin = search.inputs.repeat_interleave(copies)
    number = torch.arange(copies, device=origin.device).repeat(len(search.inputs))
    paths = Paths.start(origin, number, state if copies == 1 else state.select(origin))
    if config.temperature == 0:
        return walk(search, paths, likeliest)
    chances = Chances(config.seed, search.row_keys, copies)

    def pick(log_probs: Float[Tensor, "rows vocab"], paths: Paths) -> Int[Tensor, "rows"]:
        numbers = torch.from_numpy(chances.at(paths.length)).to(origin.device)
        return draw(filtered(log_probs, config), numbers[paths.origin, paths.label])

    return walk(search, paths, pick)


def filtered(log_probs: Float[Tensor, "rows vocab"], config: GenerationConfig) -> Float[Tensor, "rows vocab"]:
    """The probabilities at the temperature asked for, zero where a token may not be drawn; they need not sum to one."""
    best = log_probs.amax(-1, keepdim=True)
    probs = ((log_probs - best).double() / config.temperature).softmax(-1)
    for name, may_be_drawn in FILTERS.items():
        if (amount := getattr(config, name)) != GenerationConfig.model_fields[name].default:
            probs = probs * may_be_drawn(probs, amount)
    return probs


def draw(probs: Float[Tensor, "rows vocab"], number: Float[Tensor, "rows"]) -> Int[Tensor, "rows"]:
    """Where a number from 0 up to 1 falls when the probabilities are laid end to end over that length."""
    ends = probs.cumsum(-1)
    total = ends[:, -1:]
    # Rounding could put a number just below 1 at the very end, where no token is.
    at = torch.minimum(number[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(ends, at, right=True)[:, 0]


def top_k(probs: Float[Tensor, "rows vocab"], amount: int) -> Bool[Tensor, "rows vocab"]:
    """The `amount` likeliest tokens, and any as likely as the last of them."""
    return probs >= probs.topk(min(amount, probs.shape[1])).values[:, -1:]


def top_p(probs: Float[Tensor, "rows vocab"], amount: float) -> Bool[Tensor, "rows vocab"]:
    """The fewest likeliest tokens that have this share together, and any as likely as the last of them."""
    # Holtzman et al. 2020. Sorting a vocabulary costs as much as a small model's step, and the head nearly always does.
    share = amount * probs.sum(-1, keepdim=True)
    ranked = probs.topk(min(HEAD, probs.shape[1])).values
    if (ranked.sum(-1, keepdim=True) < share).any():
        ranked = probs.sort(descending=True).values
    before = ranked.cumsum(-1) - ranked
    return probs >= ranked.where(before < share, torch.inf).amin(-1, keepdim=True)


def min_p(probs: Float[Tensor, "rows vocab"], amount: float) -> Bool[Tensor, "rows vocab"]:
    """The tokens at least this likely relative to the likeliest (Nguyen et al. 2024)."""
    return probs >= amount * probs.amax(-1, keepdim=True)


FILTERS: dict[str, Filter] = {"top_k": top_k, "top_p": top_p, "min_p": min_p}
