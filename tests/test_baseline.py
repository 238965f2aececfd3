"""The linear baseline learns what a bag of words and pairs can tell, and no more."""

from __future__ import annotations

import numpy as np
import pytest

from clearhead.baseline import Baseline, features, words
from clearhead.errors import DataError

GOOD, BAD, THINGS = ("great", "lovely", "fine"), ("awful", "dull", "weak"), ("film", "plot", "cast", "music")


def reviews(count: int, seed: int) -> tuple[list[str], list[int]]:
    """Opinions, half of them turned round by a "not": only pairs of words can tell."""
    draw = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(count):
        is_good, is_turned = draw.random(2) < 0.5
        word = draw.choice(GOOD if is_good != is_turned else BAD)
        texts.append(f"The {draw.choice(THINGS)} was {'not ' if is_turned else 'very '}{word} .")
        labels.append(int(is_good))
    return texts, labels


def test_it_learns_from_pairs_of_words() -> None:
    model = Baseline.fit(*reviews(400, 1), 2)
    texts, labels = reviews(200, 2)
    probs = model.probabilities(texts)
    assert probs.sum(1) == pytest.approx(1.0)
    assert (probs.argmax(1) == labels).mean() > 0.97


def test_any_number_of_labels_and_any_script() -> None:
    texts = ["这部电影很好看", "音乐非常难听", "el perro duerme", "這個很好", "很难听", "un perro grande"] * 5
    labels = [0, 1, 2] * 10
    model = Baseline.fit(texts, labels, 3)
    assert model.probabilities(["好看", "难听", "perro"]).argmax(1).tolist() == [0, 1, 2]


def test_words_it_has_never_seen_leave_it_with_what_is_usual() -> None:
    model = Baseline.fit(["a b", "a c", "a d", "e f"] * 10, [0, 0, 0, 1] * 10, 2)
    probs = model.probabilities(["zebra", ""])
    assert probs[:, 0].min() > 0.5


def test_features_are_the_different_words_and_pairs() -> None:
    assert words("It's GOOD, good!") == ["it's", "good", ",", "good", "!"]
    assert len(features("good good good")) == 2
    assert len(features("")) == 0


def test_the_same_texts_give_the_same_model() -> None:
    one, other = (Baseline.fit(*reviews(100, 1), 2).probabilities(["great film"]) for _ in range(2))
    assert np.array_equal(one, other)


def test_a_mismatch_is_told() -> None:
    with pytest.raises(DataError, match="1 texts do not match 2 labels"):
        Baseline.fit(["a"], [0, 1], 2)
