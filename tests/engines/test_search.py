"""The search in numpy finds what the search in torch finds, with every strategy, rule and filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clearhead.engines import drawing, rules, search
from clearhead.engines.ranking import Floats, Ids, best_few, log_softmax
from clearhead.errors import DivergedError
from clearhead.generate import constraints, sampling, strategies
from clearhead.generate.hypothesis import Hypothesis
from clearhead.generate.settings import STRATEGY_NAMES, GenerationConfig
from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID, UNK_ID

VOCAB, ROWS = 9, 6
pytestmark = pytest.mark.usefixtures("unchecked")

CONFIGS: list[dict[str, Any]] = [
    {"strategy": "greedy"},
    {"strategy": "greedy", "loop_guard": False, "min_len": 3},
    {"strategy": "greedy", "no_repeat_ngram": 2},
    {"strategy": "beam", "beam_size": 1},
    {"strategy": "beam", "beam_size": 3, "nbest": 3},
    {"strategy": "beam", "beam_size": 5, "length_penalty": 0.0, "nbest": 2},
    {"strategy": "beam", "beam_size": 4, "length_penalty": -1.0, "loop_guard": False},
    {"strategy": "beam", "beam_size": 3, "patience": 2.0, "nbest": 3},
    {"strategy": "beam", "beam_size": 4, "length_penalty": 2.0, "min_len": 4, "no_repeat_ngram": 3},
    {"strategy": "sample", "seed": 3},
    {"strategy": "sample", "nbest": 3, "temperature": 2.0, "seed": 2**40},
    {"strategy": "sample", "top_k": 3, "seed": 1},
    {"strategy": "sample", "top_p": 0.7, "temperature": 0.5},
    {"strategy": "sample", "min_p": 0.2, "top_k": 4, "top_p": 0.9, "nbest": 2},
    {"strategy": "sample", "temperature": 0.0},
]


class Toy:
    """Logits that depend on the input row, the last two tokens and how many there were, in torch and in numpy."""

    def __init__(self, seed: int) -> None:
        self.table = np.random.default_rng(seed).normal(size=(ROWS, VOCAB, VOCAB, VOCAB)).astype(np.float32) * 2

    def in_torch(self, config: GenerationConfig, limits: dict[str, Any]) -> list[list[Hypothesis]]:
        class State:
            def __init__(self, fed: Tensor, identity: Tensor) -> None:
                self.fed, self.identity = fed, identity

            def select(self, rows: Tensor) -> State:
                return State(self.fed[rows], self.identity[rows])

        def step(ids: Tensor, state: State) -> tuple[Tensor, State]:
            fed = torch.cat((state.fed, ids[:, None]), 1)
            logits = torch.from_numpy(self.table)[state.identity, fed[:, -2], fed[:, -1]]
            return logits, State(fed, state.identity)

        start = State(torch.zeros(ROWS, 1, dtype=torch.long), torch.arange(ROWS))
        usual = {"bos_id": BOS_ID, "forbidden_ids": (BOS_ID, PAD_ID, UNK_ID)}
        return strategies.generate(step, start, ROWS, config, eos_id=EOS_ID, **{**usual, **limits})

    def in_numpy(self, config: GenerationConfig, limits: dict[str, Any]) -> list[list[Hypothesis]]:
        class State:
            def __init__(self, fed: Ids, identity: Ids) -> None:
                self.fed, self.identity = fed, identity

            def select(self, rows: Ids) -> State:
                return State(self.fed[rows], self.identity[rows])

        def step(ids: Ids, state: State) -> tuple[Floats, State]:
            fed = np.concatenate((state.fed, ids[:, None]), 1)
            return self.table[state.identity, fed[:, -2], fed[:, -1]], State(fed, state.identity)

        return search.generate(step, State(np.zeros((ROWS, 1), np.int64), np.arange(ROWS)), config, **limits)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", CONFIGS, ids=lambda options: "-".join(f"{k}-{v}" for k, v in options.items()))
def test_numpy_finds_what_torch_finds(options: dict[str, Any], seed: int) -> None:
    toy, config = Toy(seed), GenerationConfig(**options)
    limits: dict[str, Any] = {
        "max_lens": [12, 1, 5, 9, 30, 12],
        "repeats_allowed": [1, 2, 3, 4, 2, 2],
        "guard_span": 1 + 5 * (seed % 2),
        "row_keys": [7, 3, 3, 2**70, 5, 0],
    }
    ours, theirs = toy.in_numpy(config, limits), toy.in_torch(config, limits)
    for one, other in zip(ours, theirs, strict=True):
        assert [(h.ids, h.finished) for h in one] == [(h.ids, h.finished) for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-5)
        assert [h.log_prob for h in one] == pytest.approx([h.log_prob for h in other], abs=1e-4)
        for mine, yours in zip(one, other, strict=True):
            assert mine.token_log_probs == pytest.approx(yours.token_log_probs, abs=1e-5)


@pytest.mark.parametrize("options", CONFIGS, ids=lambda options: "-".join(f"{k}-{v}" for k, v in options.items()))
def test_prompts_stops_and_texts_without_an_end_are_torchs(options: dict[str, Any]) -> None:
    toy, config = Toy(7), GenerationConfig(**options)
    limits: dict[str, Any] = {"max_lens": [9, 12, 5, 9, 20, 12], "guard_span": 1, "row_keys": [1, 2, 3, 4, 5, 6]}
    limits |= {"repeats_allowed": [2] * ROWS, "stop": lambda ids: ids[-1] == 7 or 5 in ids[-2:-1]}
    forbidden, firsts = (BOS_ID, EOS_ID, PAD_ID, UNK_ID), [4, 5, 6, 7, 8, 4]
    choices: list[search.Choice] = []
    ours = toy.in_numpy(config, {**limits, "first_ids": firsts, "forbidden_ids": forbidden, "watch": choices.append})
    theirs = toy.in_torch(config, {**limits, "bos_id": firsts, "forbidden_ids": forbidden})
    assert [[(h.ids, h.finished) for h in one] for one in ours] == [
        [(h.ids, h.finished) for h in other] for other in theirs
    ]
    assert any(h.finished for one in ours for h in one)
    assert all(EOS_ID not in choice.tokens for choice in choices) and len(choices) > 2


def test_the_tables_have_the_same_members() -> None:
    assert list(search.STRATEGIES) == list(strategies.STRATEGIES) == list(STRATEGY_NAMES)
    assert list(rules.RULES) == list(constraints.CONSTRAINTS)
    assert list(drawing.FILTERS) == list(sampling.FILTERS)


@pytest.mark.parametrize("vocab", [5, 64, 200, 1000, 4099])
@pytest.mark.parametrize("count", [1, 3, 6])
def test_the_best_few_are_those_of_a_full_sort(vocab: int, count: int) -> None:
    chance = np.random.default_rng(vocab)
    # Few different values, so that many are equal.
    scores = chance.integers(0, 50, (7, vocab)).astype(np.float32)
    scores[0, :] = 1.0
    scores[1, chance.integers(vocab)] = -np.inf
    values, tokens = best_few(scores, count)
    few = min(count, vocab)
    assert values.tolist() == np.sort(scores)[:, ::-1][:, :few].tolist()
    assert np.take_along_axis(scores, tokens, 1).tolist() == values.tolist()
    assert tokens[:, 0].tolist() == scores.argmax(1).tolist()
    assert all(len(set(row)) == few for row in tokens.tolist())
    assert [found.shape for found in best_few(scores[:0], count)] == [(0, few)] * 2


def test_log_probabilities_are_torchs() -> None:
    logits = np.random.default_rng(0).normal(size=(4, 3000)).astype(np.float32) * 20
    expected = torch.from_numpy(logits).log_softmax(-1).numpy()
    np.testing.assert_allclose(log_softmax(logits), expected, atol=1e-5)


def run_once(logits: Sequence[float], config: GenerationConfig) -> list[list[Hypothesis]]:
    class State:
        def select(self, rows: Ids) -> State:
            return self

    def step(ids: Ids, state: State) -> tuple[Floats, State]:
        return np.tile(np.array(logits, np.float32), (len(ids), 1)), state

    limits: dict[str, Any] = {"max_lens": [4], "repeats_allowed": [2], "guard_span": 1, "row_keys": [0]}
    return search.generate(step, State(), config, **limits)


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
def test_numbers_that_are_not_finite_are_an_error(strategy: str) -> None:
    with pytest.raises(DivergedError, match=r"^the model gives numbers that are not finite for token 1 of text 1"):
        run_once([0.0, float("nan"), 1.0, 1.0, 2.0], GenerationConfig(strategy=strategy))


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
def test_a_row_with_nothing_left_to_say_ends(strategy: str) -> None:
    ((only,),) = run_once([0.0, -5.0, 1.0, 1.0], GenerationConfig(strategy=strategy, min_len=3))
    assert (only.ids, only.finished) == ((), True)


@pytest.mark.parametrize("vocab", [1000, 3000, 5001, 7999, 12001])
@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_where_one_token_may_come_it_comes_first_and_the_others_exist(vocab: int, count: int) -> None:
    scores = np.full((3, vocab), -np.inf, np.float32)
    scores[[0, 1, 2], [EOS_ID, vocab - 1, vocab // 2]] = 0.0
    values, tokens = best_few(scores, count)
    assert tokens[:, 0].tolist() == [EOS_ID, vocab - 1, vocab // 2]
    assert (values[:, 0] == 0).all() and np.isneginf(values[:, 1:]).all()
    assert (tokens < vocab).all()
