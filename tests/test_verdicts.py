"""Scores of classifiers against their definitions."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.errors import DataError
from clearhead.verdicts import OfLabel, judge, wilson

LABELS = ("a", "b", "c")
PROBS = np.array([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.9, 0.05, 0.05]])
TRUTH = [0, 1, 1, 2, 2]


def test_accuracy_f1_and_confusion_are_those_of_their_definitions() -> None:
    found = judge(PROBS, TRUTH, LABELS)
    assert found.confusion == ((1, 0, 0), (1, 1, 0), (1, 0, 1))
    assert found.count == 5 and found.accuracy == pytest.approx(3 / 5)
    assert [entry.precision for entry in found.of_labels] == pytest.approx([1 / 3, 1, 1])
    assert [entry.recall for entry in found.of_labels] == pytest.approx([1, 1 / 2, 1 / 2])
    assert [entry.f1 for entry in found.of_labels] == pytest.approx([1 / 2, 2 / 3, 2 / 3])
    assert found.macro_f1 == pytest.approx((1 / 2 + 2 / 3 + 2 / 3) / 3)
    assert found.accuracy_interval[0] < 0.6 < found.accuracy_interval[1]
    assert json.loads(json.dumps(found.as_json()))["confusion"] == [[1, 0, 0], [1, 1, 0], [1, 0, 1]]


def test_a_label_that_does_not_occur_does_not_count_in_the_mean() -> None:
    found = judge(np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]]), [0, 1], LABELS)
    assert found.macro_f1 == 1.0
    assert found.of_labels[2] == OfLabel("c", 0.0, 0.0, 0.0, 0)


def test_who_is_as_sure_as_right_is_calibrated_and_who_boasts_is_not() -> None:
    sure = np.tile([0.75, 0.25], (400, 1))
    truth = [0, 0, 0, 1] * 100
    assert judge(sure, truth, ("a", "b")).calibration_error == pytest.approx(0.0, abs=1e-9)
    boasting = np.tile([1.0, 0.0], (400, 1))
    assert judge(boasting, truth, ("a", "b")).calibration_error == pytest.approx(0.25)


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_the_interval_holds_the_share_and_stays_between_none_and_all(count: int, share: float) -> None:
    right = round(share * count)
    low, high = wilson(right, count)
    assert 0.0 <= low <= right / count + 1e-12 and right / count - 1e-12 <= high <= 1.0
    assert low < high


def test_nothing_to_score_and_a_mismatch_are_told() -> None:
    with pytest.raises(DataError, match="nothing to score"):
        judge(np.empty((0, 2)), [], ("a", "b"))
    with pytest.raises(DataError, match="5 answers do not match 4 labels"):
        judge(PROBS, TRUTH[:4], LABELS)
