"""Constraints against loops written from their definitions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from torch import Tensor

from clearhead.generate.constraints import CONSTRAINTS, Constraint, Limits, LoopGuard, NoRepeatNgram, count_repeats
from clearhead.generate.settings import GenerationConfig

VOCAB, EOS = 9, 1
ALL = pytest.mark.parametrize("name", CONSTRAINTS)
HISTORIES = some.integers(0, 24).flatmap(
    lambda length: some.lists(some.lists(some.integers(2, 4), min_size=length, max_size=length), min_size=1, max_size=4)
)


def build(name: str, rows: int = 3) -> Constraint:
    config = GenerationConfig(min_len=5, no_repeat_ngram=2)
    made = CONSTRAINTS[name].wanted(config, Limits(EOS, (0, 2), torch.full((rows,), 2), 1))
    assert made is not None
    return made


def banned(constraint: Constraint, history: Tensor, origin: Tensor | None = None) -> list[set[int]]:
    log_probs = torch.zeros(len(history), VOCAB)
    constraint.ban(log_probs, history, torch.arange(len(history)) if origin is None else origin)
    return [set(row.isneginf().nonzero()[:, 0].tolist()) for row in log_probs]


@ALL
def test_a_constraint_forbids_and_changes_nothing_else(name: str) -> None:
    log_probs = torch.randn(3, VOCAB)
    before = log_probs.clone()
    build(name).ban(log_probs, torch.tensor([[3, 4, 3, 4], [3, 3, 3, 3], [2, 3, 4, 5]]), torch.arange(3))
    assert log_probs.isneginf().any()
    assert torch.equal(log_probs[~log_probs.isneginf()], before[~log_probs.isneginf()])


@ALL
def test_a_row_is_constrained_alike_alone_and_in_a_batch(name: str) -> None:
    history = torch.tensor([[3, 4, 3, 4], [3, 3, 3, 3], [2, 3, 4, 5]])
    together = banned(build(name), history)
    assert together == [banned(build(name), history[row : row + 1], torch.tensor([row]))[0] for row in range(3)]


@ALL
@pytest.mark.parametrize("length", [0, 1, 2])
def test_short_histories_are_fine(name: str, length: int) -> None:
    assert len(banned(build(name), torch.full((2, length), 3))) == 2


def test_a_constraint_nobody_asked_for_is_not_built() -> None:
    config = GenerationConfig(min_len=0, loop_guard=False)
    limits = Limits(EOS, (), torch.ones(1, dtype=torch.long), 1)
    assert [kind.wanted(config, limits) for kind in CONSTRAINTS.values()] == [None] * len(CONSTRAINTS)


def repeats_ngram(ids: list[int], size: int) -> bool:
    grams = [tuple(ids[at : at + size]) for at in range(len(ids) - size + 1)]
    return grams[-1] in grams[:-1] if grams else False


def ends_in_loop(ids: list[int], repeats: int, span: int) -> bool:
    for block in range(1, max(12, 2 * span) + 1):
        total = max((repeats + 1) * block, span)
        tail = ids[-total:]
        if len(ids) >= total and all(tail[at] == tail[at - block] for at in range(block, total)):
            return True
    return False


@settings(max_examples=60, deadline=None)
@given(HISTORIES, some.integers(1, 4))
def test_no_repeat_ngram_equals_its_loop(histories: list[list[int]], size: int) -> None:
    history = torch.tensor(histories, dtype=torch.long)
    expected = [{token for token in range(VOCAB) if repeats_ngram([*row, token], size)} for row in histories]
    assert banned(NoRepeatNgram(size), history) == expected


@settings(max_examples=120, deadline=None)
@given(HISTORIES, some.integers(2, 4), some.sampled_from([1, 5, 8]))
def test_the_loop_guard_equals_its_loop(histories: list[list[int]], repeats: int, span: int) -> None:
    history = torch.tensor(histories, dtype=torch.long)
    guard = LoopGuard(torch.full((len(histories),), repeats), span)
    expected = [{token for token in range(VOCAB) if ends_in_loop([*row, token], repeats, span)} for row in histories]
    assert banned(guard, history) == expected


def test_very_very_may_pass_and_salad_may_not() -> None:
    salad, very, good = 3, 4, 5
    history = torch.tensor([[good, salad, salad], [good, good, very], [very, very, good]])
    assert banned(LoopGuard(torch.tensor([2, 2, 2]), 1), history) == [{salad}, set(), set()]


def test_a_phrase_may_come_twice_and_not_three_times() -> None:
    history = torch.tensor([[3, 4, 5, 3, 4, 5, 3, 4], [6, 4, 5, 3, 4, 5, 3, 4]])
    assert banned(LoopGuard(torch.tensor([2, 2]), 1), history) == [{5}, set()]


def test_a_source_that_repeats_allows_as_much() -> None:
    history = torch.full((2, 3), 3)
    guard = LoopGuard(torch.tensor([2, 5]), 1)
    assert banned(guard, history) == [{3}, set()]
    assert banned(guard, torch.full((2, 5), 3), torch.tensor([1, 1])) == [{3}, {3}]


def test_letters_may_repeat_up_to_the_span() -> None:
    guard = LoopGuard(torch.tensor([2]), 24)
    assert banned(guard, torch.full((1, 22), 3)) == [set()]
    assert banned(guard, torch.full((1, 23), 3)) == [{3}]
    # A phrase of 40 letters is longer than any word and still a phrase.
    phrase = [2 + (place * place + place // 7) % 7 for place in range(40)]
    assert banned(guard, torch.tensor([(phrase * 3)[:-1]])) == [{phrase[-1]}]


@pytest.mark.parametrize(
    ("ids", "repeats"),
    [
        ([], 1),
        ([1], 1),
        ([1, 2, 3], 1),
        ([1, 1], 2),
        ([5, 1, 1, 1], 3),
        ([1, 2, 1, 2, 1], 2),
        ([4, 1, 2, 3, 1, 2, 3], 2),
    ],
)
def test_repeats_are_counted(ids: list[int], repeats: int) -> None:
    assert count_repeats(ids) == repeats


@settings(max_examples=60, deadline=None)
@given(some.lists(some.integers(2, 3), max_size=20))
def test_a_source_may_be_said_again(ids: list[int]) -> None:
    guard = LoopGuard(torch.tensor([count_repeats(ids)]), 1)
    for end in range(len(ids)):
        assert ids[end] not in banned(guard, torch.tensor([ids[:end]], dtype=torch.long))[0]
