"""Log-probabilities in, tokens drawn at random out, in numpy: the twin of `clearhead.generate.sampling`.

A new filter is one function that says which tokens may be drawn, and one line in FILTERS under its setting's name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from clearhead.engines.ranking import Doubles, Flags, Floats, Ids
from clearhead.generate.settings import GenerationConfig

Filter: TypeAlias = Callable[[Doubles, Any], Flags]


def filtered(log_probs: Floats, config: GenerationConfig) -> Doubles:
    """The probabilities at the temperature asked for, zero where a token may not be drawn; they need not sum to one."""
    shifted = (log_probs - log_probs.max(-1, keepdims=True)).astype(np.float64) / config.temperature
    probs: Doubles = np.exp(shifted)
    probs /= probs.sum(-1, keepdims=True)
    for name, may_be_drawn in FILTERS.items():
        if (amount := getattr(config, name)) != GenerationConfig.model_fields[name].default:
            probs = probs * may_be_drawn(probs, amount)
    return probs


def draw(probs: Doubles, number: Doubles) -> Ids:
    """Where a number from 0 up to 1 falls when the probabilities are laid end to end over that length."""
    ends = probs.cumsum(-1)
    total = ends[:, -1]
    at = np.minimum(number * total, np.nextafter(total, 0))
    return (ends > at[:, None]).argmax(-1)


def top_k(probs: Doubles, amount: int) -> Flags:
    """The `amount` likeliest tokens, and any as likely as the last of them."""
    place = probs.shape[1] - min(amount, probs.shape[1])
    return probs >= np.partition(probs, place, axis=1)[:, place, None]


def top_p(probs: Doubles, amount: float) -> Flags:
    """The fewest likeliest tokens that have this share together, and any as likely as the last of them."""
    ordered = np.sort(probs, axis=1)[:, ::-1]
    before = ordered.cumsum(-1) - ordered
    share = amount * probs.sum(-1, keepdims=True)
    return probs >= np.where(before < share, ordered, np.inf).min(-1, keepdims=True)


def min_p(probs: Doubles, amount: float) -> Flags:
    """The tokens at least this likely relative to the likeliest."""
    return probs >= amount * probs.max(-1, keepdims=True)


FILTERS: dict[str, Filter] = {"top_k": top_k, "top_p": top_p, "min_p": min_p}
