"""Masks against loops that spell out who may look at whom."""

from __future__ import annotations

import pytest
import torch

from clearhead.nn import masks

LENGTHS = [(1, 1), (5, 5), (1, 6), (3, 7), (6, 4)]


@pytest.mark.parametrize(("query_len", "key_len"), LENGTHS)
def test_causal_lets_each_position_look_at_itself_and_before(query_len: int, key_len: int) -> None:
    allowed = masks.causal(query_len, key_len)
    for query in range(query_len):
        for key in range(key_len):
            assert allowed[query, key] == (key <= query + key_len - query_len)


@pytest.mark.parametrize("window", [1, 2, 3, 9])
@pytest.mark.parametrize(("query_len", "key_len"), LENGTHS)
def test_a_window_lets_each_position_look_at_its_neighbours(query_len: int, key_len: int, window: int) -> None:
    allowed = masks.sliding_window(query_len, key_len, window)
    for query in range(query_len):
        for key in range(key_len):
            assert allowed[query, key] == (abs(query + key_len - query_len - key) < window)


def test_padding_is_seen_by_nobody() -> None:
    real = masks.real_tokens(torch.tensor([[5, 6, 0], [7, 0, 0]]), pad_id=0)
    assert real.tolist() == [[True, True, False], [True, False, False]]
    allowed = masks.padding(real).expand(2, 4, 3, 3)
    for batch in range(2):
        for key in range(3):
            assert (allowed[batch, :, :, key] == real[batch, key]).all()


def test_both_is_and_where_nothing_allows_everything() -> None:
    first, second = torch.rand(2, 1, 1, 4) > 0.5, torch.rand(1, 1, 3, 4) > 0.5
    assert masks.both(None, None) is None
    assert masks.both(first, None) is first
    assert masks.both(None, second) is second
    assert torch.equal(masks.both(first, second), torch.logical_and(first, second))
