"""Draws that repeat, and filters against three-line loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clearhead.generate.chance import BLOCK, Chances
from clearhead.generate.sampling import FILTERS, draw, filtered
from clearhead.generate.settings import GenerationConfig

SAMPLE = GenerationConfig(strategy="sample")


def some_probs(seed: int = 0, rows: int = 5, vocab: int = 9) -> Tensor:
    logits = torch.randn(rows, vocab, dtype=torch.double, generator=torch.Generator().manual_seed(seed))
    return (2 * logits).softmax(-1)


def top_k_loop(probs: list[float], amount: int) -> list[bool]:
    best = sorted(probs, reverse=True)[:amount]
    return [prob in best for prob in probs]


def top_p_loop(probs: list[float], amount: float) -> list[bool]:
    best = sorted(probs, reverse=True)
    while sum(best[:-1]) >= amount * sum(probs):
        best.pop()
    return [prob in best for prob in probs]


def min_p_loop(probs: list[float], amount: float) -> list[bool]:
    return [prob >= amount * max(probs) for prob in probs]


LOOPS: dict[str, tuple[Callable[[list[float], Any], list[bool]], list[Any]]] = {
    "top_k": (top_k_loop, [1, 3, 99]),
    "top_p": (top_p_loop, [1e-6, 0.3, 0.9, 0.99999]),
    "min_p": (min_p_loop, [0.001, 0.2, 1.0]),
}


def test_every_filter_has_a_loop_and_a_setting() -> None:
    assert set(FILTERS) == set(LOOPS)
    assert set(FILTERS) <= set(GenerationConfig.model_fields)


@pytest.mark.parametrize(("name", "amount"), [(name, amount) for name, (_, some) in LOOPS.items() for amount in some])
def test_a_filter_equals_its_loop(name: str, amount: float) -> None:
    probs = some_probs()
    expected = [LOOPS[name][0](row, amount) for row in probs.tolist()]
    assert FILTERS[name](probs, amount).tolist() == expected


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_keeps_the_likeliest_and_is_off_unless_asked(name: str) -> None:
    log_probs = some_probs().log().float()
    assert (filtered(log_probs, SAMPLE) > 0).all()
    for amount in LOOPS[name][1]:
        kept = filtered(log_probs, SAMPLE.model_copy(update={name: amount})) > 0
        assert kept.gather(1, log_probs.argmax(-1, keepdim=True)).all()


def test_top_p_looks_beyond_the_head_where_it_must() -> None:
    flat = torch.full((2, 3000), 1 / 3000, dtype=torch.double)
    flat[0, :5] = 100.0
    flat += torch.arange(3000) * 1e-9
    assert FILTERS["top_p"](flat, 0.9).sum(1).tolist() == [sum(top_p_loop(row, 0.9)) for row in flat.tolist()]


def test_temperature_raises_probabilities_to_a_power() -> None:
    log_probs = torch.randn(4, 7).log_softmax(-1)
    power = log_probs.double().exp() ** 2
    probs = filtered(log_probs, SAMPLE.model_copy(update={"temperature": 0.5}))
    assert torch.allclose(probs, power / power.sum(-1, keepdim=True))


def test_filters_follow_one_another() -> None:
    log_probs = torch.tensor([[0.05, 0.3, 0.15, 0.5]]).log()
    probs = filtered(log_probs, GenerationConfig(strategy="sample", top_k=3, top_p=0.6, min_p=0.1))
    # Of the three largest, 0.95 together, the first two are the fewest that reach 0.6 of that.
    assert (probs > 0).tolist() == [[False, True, False, True]]


def test_a_number_falls_where_a_loop_says() -> None:
    probs, numbers = some_probs(rows=50), torch.linspace(0, 1 - 1e-9, 50, dtype=torch.double)
    for row, number, place in zip(probs.tolist(), numbers.tolist(), draw(probs, numbers).tolist(), strict=True):
        assert sum(row[:place]) <= number * sum(row) < sum(row[: place + 1])


def test_a_token_of_no_probability_is_never_drawn() -> None:
    probs = torch.tensor([[0.0, 0.5, 0.5, 0.0], [1.0, 0.0, 0.0, 0.0]], dtype=torch.double)
    for number in (0.0, 0.5, 0.9999999, 1.0):
        places = draw(probs, torch.full((2,), number, dtype=torch.double))
        assert (probs.gather(1, places[:, None]) > 0).all()


def uniform(seed: int, row_keys: Sequence[int], copies: int, steps: int) -> Tensor:
    chances = Chances(seed, row_keys, copies)
    return torch.from_numpy(np.stack([chances.at(step) for step in range(steps)], axis=-1))


def test_numbers_depend_on_seed_key_copy_and_step_alone() -> None:
    steps = 2 * BLOCK + 20
    many = uniform(7, [3, -1, 2**64 - 2], copies=3, steps=steps)
    assert torch.equal(uniform(7, [-1], copies=2, steps=5)[0], many[1, :2, :5])
    assert torch.equal(uniform(7, [-2], copies=3, steps=steps)[0], many[2])
    assert len(many.flatten().unique()) == many.numel()
    assert not torch.equal(uniform(8, [3], copies=3, steps=steps)[0], many[0])


def test_numbers_drawn_in_blocks_are_those_of_one_long_draw() -> None:
    stream = np.random.Philox(counter=np.array([0, 0, 0, 1], np.uint64), key=np.array([7, 3], np.uint64))
    whole = np.random.Generator(stream).random(3 * BLOCK)
    assert np.array_equal(uniform(7, [3], copies=2, steps=3 * BLOCK)[0, 1].numpy(), whole)


def test_a_text_of_any_length_may_be_asked_for(toy: Any) -> None:
    model = toy(num_rows=2)
    found = model.run(SAMPLE, max_lens=[10**12] * 2)
    assert [one.finished for (one,) in found] == [True, True]


def test_numbers_are_spread_evenly() -> None:
    numbers = uniform(0, range(2000), copies=1, steps=2)
    counts = torch.histc(numbers.flatten(), bins=10, min=0, max=1)
    assert (counts - 400).abs().max() < 80
    assert torch.corrcoef(numbers[:, 0].T)[0, 1].abs() < 0.08


def test_seeded_sampling_repeats_and_other_seeds_differ(toy: Any) -> None:
    model = toy(num_rows=20)
    first = model.run(SAMPLE)
    assert model.run(SAMPLE) == first
    assert model.run(SAMPLE.model_copy(update={"seed": 1})) != first


def test_rows_with_different_keys_draw_differently(toy: Any) -> None:
    model = toy(sharpness=0.1)
    results = model.run(SAMPLE, [0] * 8, row_keys=range(8))
    assert len({row[0].ids for row in results}) > 1
    assert len({row[0].ids for row in model.run(SAMPLE, [0] * 8, row_keys=[5] * 8)}) == 1


@pytest.mark.parametrize(
    "narrow", [{"temperature": 0.0}, {"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}, {"temperature": 1e-300}]
)
def test_sampling_that_has_no_choice_is_greedy(toy: Any, narrow: dict[str, float]) -> None:
    model = toy(num_rows=20)
    assert model.run(SAMPLE.model_copy(update=narrow)) == model.run(GenerationConfig(strategy="greedy"))


def test_draws_follow_the_model(toy: Any) -> None:
    model = toy(num_rows=1)
    count = 3000
    results = model.run(SAMPLE, [0] * count, row_keys=range(count), forbidden_ids=(0, 1, 2))
    counts = Counter(row[0].ids[0] for row in results)
    expected = model.table[0, 0, 0, 3:].softmax(0)
    for token, share in enumerate(expected.tolist(), start=3):
        assert counts[token] / count == pytest.approx(share, abs=0.035)


def test_fewer_samples_are_the_first_of_more(toy: Any) -> None:
    model = toy()
    few = model.run(SAMPLE.model_copy(update={"nbest": 2}))
    many = model.run(SAMPLE.model_copy(update={"nbest": 6}))
    for some, more in zip(few, many, strict=True):
        assert {one.ids for one in some} <= {one.ids for one in more}
