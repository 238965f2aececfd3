"""What a search did is told as it was: its candidates, its dropped paths, and the weights of the winner's own steps."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from clearhead.generate.settings import GenerationConfig
from clearhead.generate.step import Choice, Hypothesis
from clearhead.generate.strategies import generate
from clearhead.inspection.generation import Diary, endings, forced_steps, tree
from clearhead.inspection.record import recording, teacher_forced
from clearhead.models.translator import Translator
from clearhead.text.specials import BOS_ID, EOS_ID
from clearhead.text.tokenizer import TokenizerPair

SOURCE = [10, 20, 30, 40, 50]
PENALTY = 1.0


def searched(model: Translator, diary: Diary | None = None, **options: object) -> tuple[Diary, list[Hypothesis]]:
    diary = diary or Diary()
    config = GenerationConfig.model_validate({"length_penalty": PENALTY, "loop_guard": False, **options})
    with torch.inference_mode():
        state = model.start(torch.tensor([[*SOURCE, EOS_ID]]))
        (found,) = generate(
            model.step,
            state,
            1,
            config,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            max_lens=[12],
            forbidden_ids=(0, 2, 3),
            watch=diary,
        )
    return diary, found


def normalise(total: float, length: int) -> float:
    return total / length**PENALTY


@pytest.fixture(scope="module")
def model(make: Callable[..., Translator]) -> Translator:
    """One that ends now and then: untrained, </s> is one byte among 260."""
    made = make(tie="none")
    with torch.no_grad():
        made.output.weight[EOS_ID] *= 3
        made.output.weight[6:] *= 0.7
    return made


class Rows(Diary):
    """A diary that also notes in which row each hypothesis stood at each step."""

    def __call__(self, choice: Choice) -> None:
        super().__call__(choice)
        self.places = [*getattr(self, "places", []), [tuple(row) for row in choice.history.tolist()]]


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
def test_replayed_weights_are_those_of_the_cached_steps(
    model: Translator, tokenizers: TokenizerPair, strategy: str
) -> None:
    rows = Rows()
    with recording(model) as steps:
        _, (winner, *_) = searched(model, rows, strategy=strategy, beam_size=4, min_len=6)
    forced = teacher_forced(model, tokenizers, SOURCE, winner.ids, ends=winner.finished)
    count = len(forced.written)
    assert count > 3
    crowd = max(map(len, rows.places))
    assert (crowd > 1) == (strategy == "beam")
    for kind in ("decoder", "cross"):
        for look in forced.tape.of(kind):
            cached = [one.weights for one in steps.of(kind) if one.layer == look.layer]
            assert [len(weights) for weights in cached] == list(map(len, rows.places))
            for place in range(count):
                row = rows.places[place].index(winner.ids[:place])
                seen = cached[place].shape[-1]
                torch.testing.assert_close(
                    look.weights[0, :, place, :seen], cached[place][row, :, 0], atol=1e-5, rtol=0
                )
                assert float(look.weights[0, :, place, seen:].abs().sum()) == 0.0
    assert forced.tape.tokens["read"][0].text == "<s>"
    assert len(forced.tape.tokens["read"]) == len(forced.tape.tokens["target"]) == count
    assert forced.loss == pytest.approx(-winner.log_prob / count, abs=1e-4)


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_steps_have_the_probabilities_of_the_result(model: Translator, strategy: str) -> None:
    diary, (winner, *_) = searched(model, strategy=strategy, beam_size=4)
    written = [*winner.ids, EOS_ID] if winner.finished else list(winner.ids)
    steps = diary.steps(written)
    assert len(steps) == len(winner.token_log_probs) == len(written)
    for token, log_prob, candidates in zip(written, winner.token_log_probs, steps, strict=True):
        (chosen,) = [one for one in candidates if one.is_chosen]
        assert chosen.token == token and chosen.log_prob == pytest.approx(log_prob, abs=1e-6)
        values = [one.log_prob for one in candidates if not one.is_chosen]
        assert values == sorted(values, reverse=True) and 4 <= len(values) <= 5
        assert sum(math.exp(one.log_prob) for one in candidates) <= 1 + 1e-5
        assert all(one.token not in (0, 2, 3) for one in candidates), "what was forbidden was no candidate"


def test_led_through_its_own_words_a_model_says_the_same(model: Translator, tokenizers: TokenizerPair) -> None:
    diary, (winner,) = searched(model, strategy="greedy")
    forced = teacher_forced(model, tokenizers, SOURCE, winner.ids, ends=winner.finished)
    for ours, theirs in zip(forced_steps(forced.log_probs, forced.written), diary.steps(forced.written), strict=True):
        chosen = [next(one.log_prob for one in row if one.is_chosen) for row in (ours, theirs)]
        assert chosen[0] == pytest.approx(chosen[1], abs=1e-4)


def test_the_tree_of_a_beam_is_one(model: Translator) -> None:
    diary, (winner, *_) = searched(model, strategy="beam", beam_size=3)
    nodes = tree(diary, winner, EOS_ID, normalise)
    by_id = {node.id: node for node in nodes}
    assert len(by_id) == len(nodes) > 10
    children = {node.parent for node in nodes}
    for node in nodes:
        if node.parent is None:
            assert node.step == 0
        else:
            parent = by_id[node.parent]
            assert parent.step == node.step - 1 and parent.id < node.id and parent.token != EOS_ID
            assert normalise_back(node) == pytest.approx(normalise_back(parent) + node.log_prob, abs=1e-5)
        is_leaf = node.id not in children
        assert (node.fate == "dropped") <= is_leaf and (node.fate == "kept") <= (not is_leaf)
        assert (node.token == EOS_ID) == (node.fate == "finished" or (node.fate == "winner" and node.token == EOS_ID))
    won = [node.token for node in nodes if node.fate == "winner"]
    assert won == [*winner.ids, *([EOS_ID] if winner.finished else [])]
    assert {node.fate for node in nodes} >= {"winner", "dropped", "kept"}


def normalise_back(node: object) -> float:
    """The sum of log-probabilities that a node's score was made of."""
    return node.score * (node.step + 1) ** PENALTY  # type: ignore[attr-defined]


def test_endings_are_the_n_best_of_the_search(model: Translator) -> None:
    diary, found = searched(model, strategy="beam", beam_size=4, nbest=4)
    ended = endings(diary, found[0], EOS_ID, normalise)
    finished = [one for one in found if one.finished]
    assert len(finished) > 1, "some of them ended"
    scores = {one.ids: one.score for one in ended}
    for one in finished:
        assert scores[one.ids] == pytest.approx(one.score, abs=1e-5)
    assert ended[0].ids == found[0].ids
    rest = [one.score for one in ended[1:]]
    assert rest == sorted(rest, reverse=True)


def test_a_target_that_was_cut_has_no_end(model: Translator, tokenizers: TokenizerPair) -> None:
    forced = teacher_forced(model, tokenizers, SOURCE, [70, 71, 72], ends=False)
    assert forced.written == [70, 71, 72]
    assert [token.text for token in forced.tape.tokens["target"]] == ["B", "C", "D"]
    assert [token.text for token in forced.tape.tokens["read"]] == ["<s>", "B", "C"]
    assert forced.tape.of("cross")[0].weights.shape[2:] == (3, 6)


def test_leading_leaves_the_mode_of_a_model_alone(make: Callable[..., Translator], tokenizers: TokenizerPair) -> None:
    model = make(dropout=0.5).train()
    first, second = (teacher_forced(model, tokenizers, SOURCE, [70]).loss for _ in range(2))
    assert first == second and model.training
