"""The best tokens found block by block against torch's search of everything."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearhead.generate.ranking import BLOCK, WORTH_IT, best, best_few

SIZES = pytest.mark.parametrize("vocab", [1, 7, WORTH_IT - 1, WORTH_IT, WORTH_IT + 1, 5 * WORTH_IT + BLOCK - 1])


def drawn(vocab: int, *, levels: int | None = None) -> Tensor:
    """Random scores, some of them impossible; with few levels, most of them tie."""
    generator = torch.Generator().manual_seed(vocab)
    scores = torch.randn(40, vocab, generator=generator)
    if levels is not None:
        scores = (scores * levels / 4).round()
    scores[::3, ::2] = -torch.inf
    scores[5] = -torch.inf
    scores[6, :-1] = -torch.inf
    return scores


@SIZES
@pytest.mark.parametrize("levels", [None, 1, 5])
def test_the_best_token_is_the_first_of_the_largest(vocab: int, levels: int | None) -> None:
    scores = drawn(vocab, levels=levels)
    assert torch.equal(best(scores), scores.argmax(-1))


@SIZES
@pytest.mark.parametrize("count", [1, 2, 6, 33, 3000])
@pytest.mark.parametrize("levels", [None, 5])
def test_the_best_few_are_those_of_a_full_search(vocab: int, count: int, levels: int | None) -> None:
    scores = drawn(vocab, levels=levels)
    values, tokens = best_few(scores, count)
    assert torch.equal(values, scores.topk(min(count, vocab)).values)
    assert torch.equal(tokens[:, 0], best(scores))
    possible = ~values.isneginf()
    assert torch.equal(scores.gather(1, tokens)[possible], values[possible])
    for row in range(len(scores)):
        found = tokens[row][possible[row]].tolist()
        assert len(set(found)) == len(found), "no token is named twice"


def test_ties_far_apart_are_found_in_order() -> None:
    scores = torch.zeros(1, 2 * WORTH_IT)
    scores[0, [WORTH_IT + 3, 70, 2 * WORTH_IT - 1]] = 1.0
    assert best(scores).tolist() == [70]
    values, tokens = best_few(scores, 3)
    assert values.tolist() == [[1.0, 1.0, 1.0]]
    assert tokens[0, 0] == 70
    assert set(tokens[0].tolist()) == {70, WORTH_IT + 3, 2 * WORTH_IT - 1}
