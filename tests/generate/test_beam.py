"""Beam search against greedy search and against trying everything."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from clearhead.generate.settings import GenerationConfig
from clearhead.generate.step import Choice

EOS = 1
PENALTIES = pytest.mark.parametrize("penalty", [-0.5, 0.0, 0.6, 1.0, 2.0])


def every_finished_sequence(model: Any, row: int, max_len: int, penalty: float) -> list[tuple[float, tuple[int, ...]]]:
    """All sequences of tokens 3 and up with their scores, best first."""
    words = range(3, model.table.shape[-1])
    found = []
    for length in range(1, max_len + 1):
        for ids in itertools.product(words, repeat=length):
            fed, total = [0, 0, *ids], 0.0
            for at, token in enumerate([*ids, EOS]):
                total += float(model.table[row, fed[at], fed[at + 1]].log_softmax(0)[token])
            found.append((total / (length + 1) ** penalty, ids))
    return sorted(found, reverse=True)


@PENALTIES
@pytest.mark.parametrize("nbest", [1, 7])
def test_a_beam_as_large_as_the_space_finds_the_best(toy: Any, penalty: float, nbest: int) -> None:
    model = toy(num_rows=3, vocab=6)
    config = GenerationConfig(beam_size=150, nbest=nbest, length_penalty=penalty, loop_guard=False)
    for row, hypotheses in enumerate(model.run(config, max_lens=[4, 4, 3])):
        expected = every_finished_sequence(model, row, 4 if row < 2 else 3, penalty)[:nbest]
        assert [one.ids for one in hypotheses] == [ids for _, ids in expected]
        assert [one.score for one in hypotheses] == pytest.approx([score for score, _ in expected], abs=1e-5)


def beam_by_definition(
    model: Any, row: int, size: int, max_len: int, penalty: float, enough: int
) -> list[tuple[float, list[int]]]:
    """Finished sequences with their scores, best first: one path at a time, no cache, no early stop but by number."""
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    done, guide = [], [0, 0]
    for length in range(max_len + 1):
        grown = []
        for total, ids in live:
            log_probs = model.table[row, ([0, 0, *ids])[-2], ([0, 0, *ids])[-1]].log_softmax(0).double().tolist()
            is_guide = [0, 0, *ids] == guide
            words = [token for token in range(len(log_probs)) if token not in (0, 2) and (length or token != EOS)]
            likeliest = max(words, key=lambda token: log_probs[token])
            grown += [(total + log_probs[token], [*ids, token], is_guide and token == likeliest) for token in words]
        grown.sort(key=lambda one: -one[0])
        is_open = len(done) < enough
        ends = [one for place, one in enumerate(grown) if one[1][-1] == EOS and (one[2] or (is_open and place < size))]
        done += [(total / (length + 1) ** penalty, ids[:-1]) for total, ids, _ in ends]
        going_on = [one for one in grown if one[1][-1] != EOS]
        kept = [one for place, one in enumerate(going_on) if one[2] or (len(done) < enough and place < size)]
        guide = next(([0, 0, *ids] for _, ids, is_guide in kept if is_guide), [])
        live = [(total, ids) for total, ids, _ in kept]
    return sorted(done, reverse=True)


@PENALTIES
@pytest.mark.parametrize(("size", "patience"), [(2, 1.0), (3, 1.0), (5, 1.0), (2, 2.0), (3, 1.7)])
def test_a_beam_equals_its_definition(toy: Any, penalty: float, size: int, patience: float) -> None:
    model = toy(num_rows=15, vocab=10)
    model.table[..., EOS] += 1.5
    config = GenerationConfig(beam_size=size, length_penalty=penalty, patience=patience, loop_guard=False)
    results = model.run(config, max_lens=[7] * 15)
    for row, (found,) in enumerate(results):
        score, ids = beam_by_definition(model, row, size, 7, penalty, round(size * patience))[0]
        assert list(found.ids) == ids
        assert found.score == pytest.approx(score, abs=1e-5)


def test_a_path_that_starts_badly_and_ends_well_is_waited_for(toy: Any) -> None:
    model = toy(num_rows=1)
    model.table[:] = -torch.inf
    model.table[0, 0, 0, 3:5] = torch.tensor([0.7, 0.3]).log()
    model.table[0, 0, 3, [EOS, 5]] = torch.tensor([0.8, 0.2]).log()
    for before, last, token in [(3, 5, EOS), (0, 4, 6), (4, 6, 7), (6, 7, 6), (7, 6, EOS)]:
        model.table[0, before, last, token] = 0
    best = model.run(GenerationConfig(beam_size=3))[0][0]
    # After two tokens its mean is -0.40, and a finished path has -0.29; after five it is -0.24.
    assert best.ids == (4, 6, 7, 6)


@PENALTIES
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_of_one_equals_greedy(toy: Any, penalty: float, seed: int) -> None:
    model = toy(num_rows=50, seed=seed)
    greedy = model.run(GenerationConfig(strategy="greedy", length_penalty=penalty))
    assert model.run(GenerationConfig(beam_size=1, length_penalty=penalty)) == greedy


def test_a_beam_of_one_equals_greedy_when_tokens_tie(toy: Any) -> None:
    model = toy(num_rows=50, vocab=40)
    model.table = model.table.round()
    assert model.run(GenerationConfig(beam_size=1)) == model.run(GenerationConfig(strategy="greedy"))


@PENALTIES
@pytest.mark.parametrize("beam_size", [2, 3, 5])
def test_a_beam_is_never_worse_than_greedy(toy: Any, penalty: float, beam_size: int) -> None:
    model = toy(num_rows=200, vocab=12, sharpness=2.0)
    greedy = model.run(GenerationConfig(strategy="greedy", length_penalty=penalty))
    beam = model.run(GenerationConfig(beam_size=beam_size, length_penalty=penalty))
    for (found,), (plain,) in zip(beam, greedy, strict=True):
        assert (found.finished, found.score + 1e-9) >= (plain.finished, plain.score)
    assert beam != greedy


def test_the_greedy_path_goes_on_outside_a_beam_that_dropped_it(toy: Any) -> None:
    seen: list[Choice] = []
    toy(num_rows=50, vocab=12).run(GenerationConfig(beam_size=3), watch=seen.append)
    widths = {int(count) for choice in seen for count in choice.origin.bincount()}
    assert max(widths) == 3 + 1


def test_patience_never_finds_less(toy: Any) -> None:
    model = toy(num_rows=200, vocab=12, sharpness=2.0)
    found = [model.run(GenerationConfig(beam_size=3, patience=patience)) for patience in (1.0, 2.0, 4.0)]
    for few, more in itertools.pairwise(found):
        assert all(one.score <= other.score + 1e-9 for (one,), (other,) in zip(few, more, strict=True))
    assert found[0] != found[1]


def test_a_larger_beam_scores_better_on_the_whole(toy: Any) -> None:
    model = toy(num_rows=200, vocab=12, sharpness=2.0)
    means = []
    for beam_size in (1, 2, 4, 16):
        results = model.run(GenerationConfig(beam_size=beam_size))
        means.append(sum(one.score for (one,) in results) / len(results))
    assert means == sorted(means)


def test_a_first_step_has_one_row_for_each_input(toy: Any) -> None:
    model = toy()
    model.run(GenerationConfig(beam_size=4))
    assert model.rows_fed[0] == 6
    assert max(model.rows_fed) <= 6 * 5


def test_nbest_gives_as_many_as_asked(toy: Any) -> None:
    assert all(len(row) == 5 for row in toy(num_rows=30).run(GenerationConfig(beam_size=5, nbest=5)))


def test_a_small_vocabulary_gives_what_there_is(toy: Any) -> None:
    results = toy(num_rows=4, vocab=4).run(GenerationConfig(beam_size=9, nbest=9, loop_guard=False), max_lens=[2] * 4)
    for hypotheses in results:
        assert {one.ids for one in hypotheses if one.finished} == {(3,), (3, 3)}
