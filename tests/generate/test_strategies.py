"""Laws that every strategy keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clearhead.errors import DivergedError
from clearhead.generate.settings import GenerationConfig
from clearhead.generate.step import Choice, State, Step
from clearhead.generate.strategies import STRATEGIES, generate, searching

EOS = 1
ALL = pytest.mark.parametrize("strategy", STRATEGIES)
SETTINGS: dict[str, dict[str, Any]] = {"beam": {"beam_size": 4, "nbest": 3}, "sample": {"nbest": 3}}


def config_for(strategy: str, **more: Any) -> GenerationConfig:
    return GenerationConfig(**({"strategy": strategy} | SETTINGS.get(strategy, {}) | more))


@ALL
def test_batched_equals_one_by_one(strategy: str, toy: Any) -> None:
    model, config = toy(), config_for(strategy)
    together = model.run(config)
    assert together == [model.run(config, [row])[0] for row in range(6)]


@ALL
def test_the_order_of_rows_does_not_matter(strategy: str, toy: Any) -> None:
    model, config = toy(), config_for(strategy)
    order = [4, 0, 5, 2, 2, 1]
    straight = model.run(config)
    assert model.run(config, order) == [straight[row] for row in order]


@ALL
def test_log_probs_and_scores_are_those_of_the_model(strategy: str, toy: Any) -> None:
    model, config = toy(), config_for(strategy, length_penalty=0.7)
    for row, hypotheses in enumerate(model.run(config)):
        for one in hypotheses:
            expected = model.log_probs(row, one)
            assert one.token_log_probs == pytest.approx(expected, abs=1e-5)
            assert one.log_prob == pytest.approx(sum(expected), abs=1e-5)
            assert one.score == pytest.approx(sum(expected) / len(expected) ** 0.7, abs=1e-5)


@ALL
def test_results_are_sorted_and_distinct(strategy: str, toy: Any) -> None:
    for hypotheses in toy().run(config_for(strategy)):
        ranks = [(one.finished, one.score) for one in hypotheses]
        assert ranks == sorted(ranks, reverse=True)
        assert len({one.ids for one in hypotheses}) == len(hypotheses) <= 3


@ALL
def test_lengths_are_respected_row_by_row(strategy: str, toy: Any) -> None:
    max_lens = [3, 4, 5, 6, 7, 0]
    results = toy(sharpness=0.5).run(config_for(strategy, min_len=3), max_lens=max_lens)
    for longest, hypotheses in zip(max_lens, results, strict=True):
        for one in hypotheses:
            assert min(3, longest) <= len(one.ids) <= longest
            assert one.finished or len(one.ids) == longest


@ALL
def test_an_end_right_after_the_longest_length_is_no_cut(strategy: str, toy: Any) -> None:
    model = toy(num_rows=1)
    model.table[:] = 0
    model.table[..., EOS] = 50
    (hypotheses,) = model.run(config_for(strategy, min_len=4), max_lens=[4])
    assert hypotheses
    assert all(len(one.ids) == 4 and one.finished for one in hypotheses)


@ALL
def test_a_row_that_never_ends_is_cut(strategy: str, toy: Any) -> None:
    model = toy()
    model.table[..., EOS] = -50
    for hypotheses in model.run(config_for(strategy), max_lens=[5] * 6):
        assert hypotheses
        for one in hypotheses:
            assert not one.finished
            assert len(one.ids) == len(one.token_log_probs) == 5


@ALL
def test_forbidden_tokens_never_come(strategy: str, toy: Any) -> None:
    model = toy()
    model.table[..., 3] += 5
    results = model.run(config_for(strategy), forbidden_ids=(0, 2, 3))
    assert not {0, 1, 2, 3} & {token for row in results for one in row for token in one.ids}


@ALL
def test_no_ngram_comes_twice(strategy: str, toy: Any) -> None:
    model = toy()
    model.table[..., EOS] -= 4
    for hypotheses in model.run(config_for(strategy, no_repeat_ngram=2, loop_guard=False), max_lens=[30] * 6):
        for one in hypotheses:
            pairs = list(zip(one.ids, one.ids[1:], strict=False))
            assert len(set(pairs)) == len(pairs)


@ALL
def test_the_loop_guard_stops_salad(strategy: str, toy: Any) -> None:
    model = toy(num_rows=2)
    model.table[:] = 0
    model.table[..., 5] = 20
    config = config_for(strategy, nbest=1)
    free = model.run(config_for(strategy, nbest=1, loop_guard=False))
    assert free[0][0].ids == (5,) * 9
    for row, most in zip(model.run(config, repeats_allowed=[1, 4]), (2, 4), strict=True):
        assert (5,) * most == row[0].ids[:most]
        assert row[0].ids[most : most + 1] != (5,)


@ALL
def test_a_row_with_everything_forbidden_ends(strategy: str, toy: Any) -> None:
    results = toy().run(config_for(strategy, min_len=2), forbidden_ids=tuple(range(8)))
    for hypotheses in results:
        assert [one.ids for one in hypotheses] == [()]
        assert all(one.finished and one.log_prob > -torch.inf for one in hypotheses)


@ALL
def test_an_impossible_end_is_still_the_last_resort(strategy: str, toy: Any) -> None:
    model = toy()
    model.table[..., EOS] = -torch.inf
    for hypotheses in model.run(config_for(strategy), forbidden_ids=(0, 2, 3, 4, 5, 6, 7)):
        assert [one.ids for one in hypotheses] == [()]
        assert hypotheses[0].score == hypotheses[0].score


@ALL
@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_numbers_that_are_not_finite_are_an_error(strategy: str, poison: float, toy: Any) -> None:
    model = toy()
    model.table[4, 0, 0, 7] = poison
    with pytest.raises(DivergedError, match=r"not finite for token 1 of text 5: its weights are damaged"):
        model.run(config_for(strategy))


@ALL
def test_no_rows_give_no_results(strategy: str, toy: Any) -> None:
    model = toy()
    assert model.run(config_for(strategy), []) == []
    assert model.rows_fed == []


@ALL
def test_finished_rows_are_no_longer_computed(strategy: str, toy: Any) -> None:
    model = toy(num_rows=40)
    results = model.run(config_for(strategy))
    last = model.rows_fed[-1]
    assert last < model.rows_fed[0]
    assert sum(model.rows_fed) < 40 * 10 * (1 if strategy == "greedy" else 4)
    assert len(results) == 40


@ALL
def test_a_watcher_sees_every_step_of_every_result(strategy: str, toy: Any) -> None:
    seen: list[Choice] = []
    results = toy().run(config_for(strategy), watch=seen.append)
    grown = {
        (int(choice.origin[row]), (*choice.history[row].tolist(), int(token)))
        for choice in seen
        for row, token in zip(choice.rows, choice.tokens, strict=True)
    }
    for origin, hypotheses in enumerate(results):
        for one in hypotheses:
            said = (*one.ids, EOS) if one.finished else one.ids
            assert all((origin, said[: end + 1]) in grown for end in range(len(said)))
    for choice in seen:
        assert (choice.log_probs[choice.rows, choice.tokens] > -torch.inf).all()
        assert choice.log_probs[:, [0, 2]].isneginf().all()


@ALL
def test_a_hypothesis_ends_where_it_is_told_to(strategy: str, toy: Any) -> None:
    model = toy(sharpness=0.5)
    for hypotheses in model.run(config_for(strategy), stop=lambda ids: ids[-1] == 5):
        assert hypotheses
        for one in hypotheses:
            assert 5 not in one.ids[:-1]
            is_told = one.ids[-1:] == (5,)
            assert len(one.token_log_probs) == len(one.ids) + (one.finished and not is_told)
            assert one.finished or len(one.ids) == 9


@ALL
def test_the_log_probs_of_what_was_told_to_end_are_those_of_the_model(strategy: str, toy: Any) -> None:
    model = toy(sharpness=0.5)
    results = model.run(config_for(strategy), stop=lambda ids: len(ids) == 4)
    told = [(row, one) for row, hypotheses in enumerate(results) for one in hypotheses if len(one.ids) == 4]
    assert told
    for row, one in told:
        assert one.token_log_probs == pytest.approx(model.log_probs(row, one)[:4], abs=1e-5)


@ALL
def test_a_stop_that_never_comes_changes_nothing(strategy: str, toy: Any) -> None:
    model, config = toy(), config_for(strategy)
    assert model.run(config, stop=lambda ids: False) == model.run(config)


@ALL
def test_rows_may_be_fed_different_tokens_first(strategy: str, toy: Any) -> None:
    model, config = toy(), config_for(strategy)
    together = model.run(config, [3, 3, 3], bos_id=[0, 4, 6], row_keys=[0, 0, 0])
    assert together == [model.run(config, [3], bos_id=first, row_keys=[0])[0] for first in (0, 4, 6)]
    assert together[0] != together[1]


@ALL
def test_a_search_can_be_followed_step_by_step(strategy: str, toy: Any) -> None:
    model, config, seen = toy(), config_for(strategy), []
    state, limits = model.start([0, 1]), {"bos_id": 0, "eos_id": EOS, "max_lens": [9, 9], "forbidden_ids": (0, 2)}
    steps = searching(model.step, state, 2, config, **limits)
    while True:
        try:
            seen.append(next(steps))
        except StopIteration as end:
            assert end.value == model.run(config, [0, 1])
            break
    assert [choice.history.shape[1] for choice in seen] == list(range(len(seen)))


@ALL
def test_watching_changes_nothing(strategy: str, toy: Any) -> None:
    model, config = toy(), config_for(strategy)
    assert model.run(config, watch=lambda choice: None) == model.run(config)


def test_greedy_computes_only_rows_that_are_under_way(toy: Any) -> None:
    model = toy(num_rows=20)
    results = model.run(GenerationConfig(strategy="greedy"))
    steps = [len(row[0].ids) + 1 for row in results]
    assert model.rows_fed == [sum(count > step for count in steps) for step in range(max(steps))]


def test_the_toy_speaks_the_protocol(toy: Any) -> None:
    model = toy()
    assert isinstance(model.start([0]), State)
    assert isinstance(model.step, Step)


def test_each_row_needs_its_own_limit(toy: Any) -> None:
    model = toy()
    with pytest.raises(ValueError, match="2 rows need as many numbers, not 1"):
        generate(model.step, model.start([0, 1]), 2, GenerationConfig(), bos_id=0, eos_id=1, max_lens=[3])
