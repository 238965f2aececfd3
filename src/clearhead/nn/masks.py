"""Lengths in, boolean masks out: True = may look."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def real_tokens(ids: Int[Tensor, "batch time"], pad_id: int) -> Bool[Tensor, "batch time"]:
    """Which positions hold a token and not padding."""
    return ids != pad_id


def padding(real: Bool[Tensor, "batch key"]) -> Bool[Tensor, "batch 1 1 key"]:
    """Everybody may look at real tokens, nobody at padding."""
    return real[:, None, None, :]


def causal(query_len: int, key_len: int, device: torch.device | None = None) -> Bool[Tensor, "query key"]:
    """Each position may look at itself and before; the last query stands at the last key.

    >>> causal(3, 3).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    >>> causal(1, 3).int().tolist()
    [[1, 1, 1]]
    """
    return torch.ones(query_len, key_len, dtype=torch.bool, device=device).tril(key_len - query_len)


def sliding_window(
    query_len: int, key_len: int, window: int, device: torch.device | None = None
) -> Bool[Tensor, "query key"]:
    """Each position may look at those fewer than `window` steps away, on either side.

    >>> sliding_window(4, 4, window=2).int().tolist()
    [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    """
    near = torch.ones(query_len, key_len, dtype=torch.bool, device=device)
    shift = key_len - query_len
    return near.tril(shift + window - 1) & near.triu(shift - window + 1)


def same_text(texts: Int[Tensor, "batch time"]) -> Bool[Tensor, "batch 1 time time"]:
    """Of several texts in one row, each looks at itself only; `texts` says which one every position belongs to.

    >>> same_text(torch.tensor([[0, 0, 1]])).int().tolist()
    [[[[1, 1, 0], [1, 1, 0], [0, 0, 1]]]]
    """
    return (texts[:, :, None] == texts[:, None, :])[:, None]


def places_in_text(texts: Int[Tensor, "batch time"]) -> Int[Tensor, "batch time"]:
    """Where each position stands in its own text, if texts follow one another.

    >>> places_in_text(torch.tensor([[0, 0, 1, 1, 1, 2]])).tolist()
    [[0, 1, 0, 1, 2, 0]]
    """
    here = torch.arange(texts.shape[1], device=texts.device).expand_as(texts)
    begins = torch.ones_like(texts, dtype=torch.bool)
    begins[:, 1:] = texts[:, 1:] != texts[:, :-1]
    return here - here.masked_fill(~begins, 0).cummax(1).values


def both(
    first: Bool[Tensor, "..."] | None,
    second: Bool[Tensor, "..."] | None,
) -> Bool[Tensor, "..."] | None:
    """What both masks allow, where None allows everything."""
    if first is None:
        return second
    return first if second is None else first & second
