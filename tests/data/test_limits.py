"""What a pair must be like."""

from __future__ import annotations

import pytest

from clearhead.config import build
from clearhead.data.limits import Limits, judge
from clearhead.data.reasons import REASONS, Reason
from clearhead.errors import ConfigError


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("", "", Reason.EMPTY),
        ("a", "", Reason.EMPTY),
        ("", "a", Reason.EMPTY),
        ("ja", "yes", Reason.KEPT),
        ("Ja.", "Yes, that is quite right, I think.", Reason.KEPT),
        ("Wort " * 20, "word", Reason.RATIO),
        ("word", "Wort " * 20, Reason.RATIO),
        ("幸会。", "It's a privilege to meet you.", Reason.KEPT),
        ("他们中的任何一位我都不认识。", "I know none of them.", Reason.KEPT),
        ("x" * 1_000, "y" * 1_000, Reason.KEPT),
        ("x" * 1_001, "y" * 1_000, Reason.TOO_LONG),
        ("y" * 1_000, "x" * 1_001, Reason.TOO_LONG),
        ("我" * 1_000, "你" * 1_000, Reason.KEPT),
        ("London", "London", Reason.IDENTICAL),
        ("北京", "北京", Reason.IDENTICAL),
        ("2001", "2001", Reason.KEPT),
        ("… !?", "… !?", Reason.KEPT),
    ],
)
def test_a_pair_is_judged_by_its_first_fault(source: str, target: str, reason: Reason) -> None:
    assert judge(source, target, Limits()) is reason


def test_the_ratio_turns_exactly_at_its_limit() -> None:
    limits = Limits(max_ratio=3.0)
    assert judge("x" * 20, "y" * 60, limits) is Reason.KEPT
    assert judge("x" * 20, "y" * 61, limits) is Reason.RATIO
    assert judge("x", "y" * 30, limits) is Reason.KEPT
    assert judge("x", "y" * 31, limits) is Reason.RATIO


def test_identical_sides_can_be_allowed() -> None:
    assert judge("copy", "copy", Limits(drop_identical=False)) is Reason.KEPT


@pytest.mark.parametrize("wrong", [{"max_chars": 0}, {"max_ratio": 1.0}, {"max_ratio": "4"}])
def test_senseless_limits_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"'{next(iter(wrong))}' ="):
        build(Limits, wrong, "limits")


def test_every_reason_but_kept_has_a_name_and_a_meaning() -> None:
    assert set(REASONS) == set(Reason) - {Reason.KEPT}
    assert len({reason.label for reason in Reason}) == len(Reason)
    assert max(Reason) < 256
