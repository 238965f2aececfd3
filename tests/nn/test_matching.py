"""Matching against the paper's words spelled out in loops, and the laws of merging and unmerging."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearhead.nn.matching import Matching, around, corners, match, move, rows_at, two_hands

BATCH, TIME, DIM = 3, 9, 6


def lengths(time: int, *counts: int) -> Tensor:
    return torch.arange(time) < torch.tensor(counts)[:, None]


def by_loops(likeness: Tensor, sources: Tensor, targets: Tensor, r: int) -> dict[int, int]:
    """Of one sequence: which token goes into which, by the words of the paper."""
    pairs = []
    for source in sources.nonzero().flatten().tolist():
        found = [
            (torch.cosine_similarity(likeness[source], likeness[target], dim=0).item(), -target)
            for target in targets.nonzero().flatten().tolist()
        ]
        if found:
            best, target = max(found)
            pairs.append((best, -source, -target))
    return {-source: target for _, source, target in sorted(pairs, reverse=True)[:r]}


@pytest.mark.parametrize("r", [0, 1, 2, 3, 50])
def test_matching_is_what_the_paper_says(r: int) -> None:
    likeness, real = torch.randn(BATCH, TIME, DIM), lengths(TIME, 9, 6, 1)
    sources, targets = two_hands(real)
    matching = match(likeness, sources, targets, r, real)
    for row in range(BATCH):
        wanted = by_loops(likeness[row], sources[row], targets[row], r)
        found = zip(matching.source[row].tolist(), matching.target[row].tolist(), matching.counts[row], strict=True)
        assert {source: target for source, target, counts in found if counts} == wanted
        left = [token for token in range(TIME) if real[row, token] and token not in wanted]
        assert matching.move.places[row, : len(left)].tolist() == left
        for token in range(TIME):
            into = matching.move.into[row, token].item()
            assert into == (left.index(wanted.get(token, token)) if real[row, token] else -1)


@pytest.mark.parametrize("r", [1, 3])
def test_merging_is_the_mean_of_all_that_is_held(r: int) -> None:
    x, sizes, real = torch.randn(BATCH, TIME, DIM), torch.randint(1, 5, (BATCH, TIME)).float(), lengths(TIME, 9, 6, 2)
    matching = match(torch.randn(BATCH, TIME, DIM), *two_hands(real), r, real)
    merged, grown = matching.merge(x, sizes)
    for row in range(BATCH):
        into = matching.move.into[row]
        for place in range(int(into.max()) + 1):
            held = into == place
            assert grown[row, place] == sizes[row, held].sum()
            mean = (x[row, held] * sizes[row, held, None]).sum(0) / sizes[row, held].sum()
            torch.testing.assert_close(merged[row, place], mean)


def test_who_takes_nothing_in_stays_as_it_was_to_the_bit() -> None:
    x, sizes = torch.randn(1, TIME, DIM), torch.full((1, TIME), 3.0)
    matching = match(x, *two_hands(torch.ones(1, TIME, dtype=torch.bool)), 2)
    merged, _ = matching.merge(x, sizes)
    alone = [place for place in range(TIME - 2) if (matching.move.into[0] == place).sum() == 1]
    assert len(alone) >= TIME - 4
    for place in alone:
        assert torch.equal(merged[0, place], x[0, matching.move.places[0, place]])


def test_equal_tokens_merge_first_and_unmerging_brings_them_back() -> None:
    x = torch.randn(1, 4, DIM).repeat_interleave(2, dim=1)
    matching = match(x, *two_hands(torch.ones(1, 8, dtype=torch.bool)), 4)
    merged, sizes = matching.merge(x)
    assert sizes.tolist() == [[2.0] * 4]
    torch.testing.assert_close(matching.unmerge(merged), x)


def test_unmerging_gives_each_token_its_holder() -> None:
    x = torch.randn(BATCH, TIME, DIM)
    matching = match(x, *two_hands(torch.ones(BATCH, TIME, dtype=torch.bool)), 3)
    merged, _ = matching.merge(x)
    again = matching.unmerge(merged)
    assert again.shape == x.shape
    for row in range(BATCH):
        for token in range(TIME):
            assert torch.equal(again[row, token], merged[row, matching.move.into[row, token]])


def test_merging_has_a_gradient_for_every_token() -> None:
    x = torch.randn(BATCH, TIME, DIM, dtype=torch.double, requires_grad=True)
    matching = match(x, *two_hands(torch.ones(BATCH, TIME, dtype=torch.bool)), 4)

    def merge(x: Tensor) -> Tensor:
        return Matching(*matching).merge(x)[0]

    assert torch.autograd.gradcheck(merge, (x,))


@pytest.mark.parametrize("r", [0, 5, 12])
def test_around_a_sublayer_there_are_as_many_tokens_out_as_in(r: int) -> None:
    x, seen = torch.randn(2, 16, DIM), []

    def sublayer(h: Tensor) -> Tensor:
        seen.append(h.shape[1])
        return 2 * h

    mixed = around(x, sublayer, corners(4, 4), r)
    assert mixed.shape == x.shape
    assert seen == [16 - r]
    if r == 0:
        assert torch.equal(mixed, 2 * x)
    # A quarter of the tokens are targets: they stay, and all others may go.
    assert len({tuple(row) for row in mixed[0].tolist()}) == 16 - r


def test_moving_keeps_the_order_and_fills_up_what_is_shorter() -> None:
    kept = torch.tensor([[True, False, True, True], [False, True, False, False]])
    moved = move(kept)
    assert moved.real.tolist() == [[True, True, True], [True, False, False]]
    assert moved.into.tolist() == [[0, -1, 1, 2], [-1, 0, -1, -1]]
    x = torch.arange(8.0).view(2, 4, 1)
    assert rows_at(x, moved.places)[0].flatten().tolist() == [0.0, 2.0, 3.0]
    assert rows_at(x, moved.places)[1, 0].item() == 5.0
