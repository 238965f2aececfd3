"""Hand-made heads get the numbers and the names that they should."""

from __future__ import annotations

from importlib.resources import files

import pytest
import torch
from torch import Tensor

from clearhead.cli.inspect import WORDS
from clearhead.inspection.measures import (
    BROAD,
    HABITS,
    MEASURES,
    OWN_ONLY,
    Sight,
    alignment,
    label,
    measured,
    rollout,
    sight,
    unseen,
    words_looked_at,
)
from clearhead.inspection.record import Look
from clearhead.inspection.tokens import Token

TIME = 6
KEYS = [*(Token(f"w{place}", place) for place in range(TIME - 2)), Token(".", TIME - 2), Token("</s>", TIME - 1, True)]


def pointing(places: list[int], keys: int = TIME) -> Tensor:
    """A head of which each position looks at one place only."""
    weights = torch.zeros(1, len(places), keys)
    weights[0, torch.arange(len(places)), torch.tensor(places)] = 1.0
    return weights


def uniform(causal: bool) -> Tensor:
    weights = torch.ones(1, TIME, TIME)
    weights = weights.tril() if causal else weights
    return weights / weights.sum(-1, keepdim=True)


def seen(weights: Tensor, *, causal: bool = False, is_own: bool = True) -> Sight:
    allowed = torch.ones(weights.shape[1:], dtype=torch.bool)
    return Sight(weights.double(), allowed.tril() if causal else allowed, KEYS[: weights.shape[2]], is_own)


HEADS = {
    "previous": pointing([3, 0, 1, 2, 3, 4]),
    "next": pointing([1, 2, 3, 4, 5, 0]),
    "self": pointing([0, 1, 2, 3, 4, 5]),
    "first": pointing([0] * TIME),
    "last": pointing([TIME - 1] * TIME),
    "punctuation": pointing([TIME - 2] * TIME),
    "everywhere": uniform(causal=False),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_with_one_habit_has_its_name_and_the_full_share(name: str) -> None:
    (row,) = measured(seen(HEADS[name]))
    assert set(row) == set(MEASURES)
    found = label(row)
    assert found is not None and found.code == name and found.share == pytest.approx(1.0)
    if name != "everywhere":
        assert row[name] == pytest.approx(1.0) and row["entropy"] == pytest.approx(0.0)


@pytest.mark.parametrize("causal", [False, True])
def test_looking_everywhere_alike_has_the_highest_entropy(causal: bool) -> None:
    (row,) = measured(seen(uniform(causal), causal=causal))
    assert row["entropy"] == pytest.approx(1.0)
    chance = torch.rand(50, TIME, TIME, generator=torch.Generator().manual_seed(1))
    chance = chance.tril() if causal else chance
    others = measured(seen(chance / chance.sum(-1, keepdim=True), causal=causal))
    assert all(0.0 < other["entropy"] < 1.0 for other in others)


def test_shares_lie_between_zero_and_one() -> None:
    weights = (4 * torch.randn(40, TIME, TIME, generator=torch.Generator().manual_seed(2))).softmax(-1)
    for row in measured(seen(weights)):
        assert all(-1e-9 <= value <= 1 + 1e-9 for name, value in row.items() if name != "distance")
        assert 0 <= row["distance"] <= TIME - 1


def test_a_causal_head_that_looks_back_is_not_spoilt_by_its_first_token() -> None:
    (row,) = measured(seen(pointing([0, 0, 1, 2, 3, 4]), causal=True))
    assert row["previous"] == pytest.approx(1.0) and row["self"] == pytest.approx(0.0)
    assert row["next"] == 0.0 and row["last"] == 0.0 and row["distance"] == pytest.approx(1.0)


def test_a_head_without_one_habit_may_still_be_near_or_sharp() -> None:
    shared = (HEADS["previous"] + HEADS["self"] + HEADS["next"]) / 3
    (row,) = measured(seen(shared))
    # The ends have one neighbour, and look elsewhere for the other.
    assert row["near"] == pytest.approx(1 - 2 * (1 / 3) / TIME) and row["peak"] == pytest.approx(1 / 3)
    assert label(row) == ("near", pytest.approx(row["near"]))
    (jumping,) = measured(seen(pointing([3, 5, 0, 1, 0, 2])))
    assert jumping["peak"] == pytest.approx(1.0) and label(jumping) == ("peak", pytest.approx(1.0))
    (early,) = measured(seen(pointing([0, 0, 1, 0, 0, 1]), causal=True))
    assert early["near"] == 0.0, "before there are four to choose from, all are near"


def test_every_measure_and_every_habit_has_its_words() -> None:
    words = files("clearhead.inspection").joinpath("page", "words.js").read_text(encoding="utf-8")
    for name in MEASURES:
        assert f'"measure.{name}": [' in words
    assert set(WORDS) == {*HABITS, *BROAD, "everywhere"}
    for code, said in WORDS.items():
        assert f'"label.{code}": ["{said}"' in words, "the terminal and the page say the same"


def test_a_mark_that_only_the_end_can_see_names_no_causal_head() -> None:
    (row,) = measured(seen(pointing([0, 0, 0, 0, 4, 4]), causal=True))
    assert row["punctuation"] == pytest.approx(2 / 5)


def test_between_two_sequences_positions_are_not_compared_but_the_diagonal_is() -> None:
    (row,) = measured(seen(pointing([0, 1, 2, 3, 4, 5]), is_own=False))
    assert not set(OWN_ONLY) & set(row)
    assert row["diagonal"] == pytest.approx(1.0) and label(row) == ("diagonal", pytest.approx(1.0))
    (stretched,) = measured(seen(pointing([0, 5, 5], keys=6), is_own=False))
    (crossed,) = measured(seen(pointing([5, 3, 0], keys=6), is_own=False))
    assert 0 < stretched["diagonal"] < 1 and crossed["diagonal"] == 0.0


def test_one_token_says_nothing() -> None:
    (row,) = measured(seen(torch.ones(1, 1, 1)))
    assert set(row.values()) == {0.0} and label(row) is None


def test_a_mask_of_the_batch_is_that_of_the_row() -> None:
    real = torch.tensor([[True] * 6, [True] * 3 + [False] * 3])
    look = Look("encoder", 0, torch.rand(2, 4, 6, 6), real[:, None, None], (0, 1, 2, 3))
    assert sight(look, {}, 1).allowed.tolist() == [[True] * 3 + [False] * 3] * 6
    assert sight(look._replace(allowed=None), {"source": KEYS}).keys == KEYS


def test_rollout_is_a_product_of_half_looks() -> None:
    one, two = (4 * torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(3))).softmax(-1)
    own = torch.eye(5)
    expected = (0.5 * two.mean(0) + 0.5 * own) @ (0.5 * one.mean(0) + 0.5 * own)
    found = rollout([one, two])
    assert found is not None
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found.sum(-1), torch.ones(5))
    assert rollout([]) is None
    silent = rollout([one[:0]])
    assert silent is not None and torch.equal(silent, own)


SOURCE = [Token("▁gr", 0), Token("ün", 0), Token("▁Haus", 1), Token("▁so", 2), Token("</s>", 3, True)]
TARGET = [Token("▁green", 0), Token("▁ho", 1), Token("use", 1), Token("</s>", 2, True)]
CROSS = torch.tensor(
    [[[0.3, 0.3, 0.0, 0.0, 0.4], [0.0, 0.1, 0.4, 0.0, 0.5], [0.0, 0.0, 0.5, 0.0, 0.5], [0.0, 0.0, 0.0, 0.0, 1.0]]]
)


def test_words_are_aligned_whatever_goes_to_control_tokens() -> None:
    looked = words_looked_at(CROSS, TARGET, SOURCE)
    torch.testing.assert_close(looked[:2].sum(-1), torch.ones(2, dtype=torch.double))
    assert [(link.target, link.source) for link in alignment(looked)] == [(0, 0), (1, 1)]
    assert alignment(looked)[0].weight == pytest.approx(1.0)
    assert unseen(looked, SOURCE) == [2], "nobody looked at 'so', and </s> is not a word"


def test_a_look_shared_by_two_words_links_both() -> None:
    even = torch.full((1, 4, 5), 0.2)
    links = alignment(words_looked_at(even, TARGET, SOURCE))
    assert [(link.target, link.source) for link in links] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert unseen(words_looked_at(even, TARGET, SOURCE), SOURCE) == []


def test_no_words_no_alignment() -> None:
    only_ends = words_looked_at(torch.ones(1, 1, 5) / 5, TARGET[-1:], SOURCE)
    assert alignment(only_ends) == [] and unseen(only_ends, SOURCE) == []
