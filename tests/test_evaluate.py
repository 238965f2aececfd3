"""Scores against sacreBLEU called directly, and what they must always keep to."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest
import sacrebleu

from clearhead import evaluate
from clearhead.errors import DataError
from clearhead.evaluate import TOKENIZERS, bleu_tokenizer, compare, score, tokenised_bleu

WORDS = [
    "a",
    "man",
    "in",
    "the",
    "blue",
    "shirt",
    "is",
    "on",
    "ladder",
    ",",
    "and",
    "two",
    "dogs",
    "run",
    "over",
    "grass",
]


def some_pairs(count: int = 40) -> tuple[list[str], list[str]]:
    """References, and hypotheses with some words wrong."""
    chance = random.Random(5)
    references = [" ".join(chance.choices(WORDS, k=chance.randint(4, 12))) for _ in range(count)]
    hypotheses = [
        " ".join(word if chance.random() < 0.8 else chance.choice(WORDS) for word in line.split())
        for line in references
    ]
    return hypotheses, references


def test_scores_equal_those_of_sacrebleu() -> None:
    hypotheses, references = some_pairs()
    found = score(hypotheses, references, resamples=100)
    assert found.bleu == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    assert found.chrf == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [references]).score)
    assert found.count == 40


def test_signatures_say_how_it_was_measured() -> None:
    found = score(*some_pairs(), resamples=100, seed=7)
    assert {"nrefs:1", "bs:100", "seed:7", "case:mixed", "tok:13a"} <= set(found.bleu_signature.split("|"))
    assert {"nrefs:1", "bs:100", "seed:7", "case:mixed", "nc:6"} <= set(found.chrf_signature.split("|"))
    assert f"version:{sacrebleu.__version__}" in found.bleu_signature


@pytest.mark.parametrize("count", [1, 3, 40])
def test_an_interval_contains_its_score(count: int) -> None:
    found = score(*some_pairs(count), resamples=200)
    for point, interval in ((found.bleu, found.bleu_interval), (found.chrf, found.chrf_interval)):
        assert interval is not None
        assert 0 <= interval[0] <= point <= interval[1] <= 100


def test_more_text_makes_the_interval_narrower() -> None:
    widths = []
    for count in (20, 500):
        interval = score(*some_pairs(count), resamples=200).bleu_interval
        assert interval is not None
        widths.append(interval[1] - interval[0])
    assert 0 < widths[1] < widths[0]


def test_the_same_seed_gives_the_same_interval() -> None:
    pairs = some_pairs()
    first = score(*pairs, resamples=100)
    assert score(*pairs, resamples=100) == first
    assert score(*pairs, resamples=100, seed=1).bleu_interval != first.bleu_interval


@pytest.mark.parametrize("before", [None, "77"])
def test_the_seed_does_not_leak(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    if before is None:
        monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    else:
        monkeypatch.setenv("SACREBLEU_SEED", before)
    assert "seed:12345" in score(*some_pairs(5), resamples=10).bleu_signature
    assert os.environ.get("SACREBLEU_SEED") == before


def test_large_sets_are_resampled_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "MOST_LINES_DRAWN", 40 * 25)
    assert "bs:25" in score(*some_pairs(40), resamples=100).bleu_signature
    assert "bs:20" in score(*some_pairs(40), resamples=20).bleu_signature
    few = tokenised_bleu(*some_pairs(40), resamples=25)
    assert tokenised_bleu(*some_pairs(40), resamples=100) == few != tokenised_bleu(*some_pairs(40), resamples=20)
    assert "bs:25" in compare(*some_pairs(40), some_pairs(40)[1], resamples=100)[0].signature


def test_without_resamples_there_is_no_interval() -> None:
    found = score(*some_pairs(), resamples=0)
    assert found.bleu_interval is None
    assert found.chrf_interval is None
    assert "bs:" not in found.bleu_signature


def test_identical_text_scores_full_marks() -> None:
    _, references = some_pairs()
    found = score(references, references, resamples=100)
    assert (found.bleu, found.chrf, found.exact_match) == (100.0, 100.0, 1.0)
    assert found.bleu_interval == pytest.approx((100.0, 100.0))


def test_nothing_right_scores_zero() -> None:
    found = score(["", "xyz"], ["a man stands here", "two dogs run fast"], resamples=10)
    assert found.bleu == 0
    assert found.exact_match == 0


def test_case_counts() -> None:
    assert score(["the man is here now"], ["The man is here now"], resamples=0).bleu < 100


def test_exact_match_ignores_space_around_only() -> None:
    found = score([" a b\n", "a  b", "A b", ""], ["a b", "a b", "a b", " "], resamples=0)
    assert found.exact_match == 0.5


def test_chinese_is_split_into_characters() -> None:
    hypotheses, references = ["我吃了一个苹果。", "今天天气很好"], ["我吃了两个苹果。", "今天天气不好"]
    found = score(hypotheses, references, target_language="zh-CN", resamples=10)
    assert "tok:zh" in found.bleu_signature
    assert found.bleu == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references], tokenize="zh").score)
    assert found.bleu > score(hypotheses, references, target_language="en", resamples=10).bleu
    assert score(hypotheses, references, resamples=10) == score(
        hypotheses, references, target_language="zh", resamples=10
    )


@pytest.mark.parametrize(
    ("language", "references", "tokenizer"),
    [
        (None, ["他有 2 个 iPhone。", "好！"], "zh"),
        (None, ["He met 王小明.", "No."], "13a"),
        (None, [], "13a"),
        ("en", ["我吃了一个苹果。"], "13a"),
        ("cmn", ["I ate."], "zh"),
        ("zho_Hans", ["I ate."], "zh"),
    ],
)
def test_references_tell_how_words_are_set_apart_unless_a_language_does(
    language: str | None, references: list[str], tokenizer: str
) -> None:
    assert bleu_tokenizer(language, references) == tokenizer


@pytest.mark.parametrize("language", TOKENIZERS)
def test_a_missing_word_splitter_falls_back_to_characters(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = evaluate.BLEU

    def without_extras(tokenize: str) -> sacrebleu.BLEU:
        if "mecab" in tokenize:
            raise RuntimeError("not installed")
        return real(tokenize=tokenize)

    monkeypatch.setattr(evaluate, "BLEU", without_extras)
    assert bleu_tokenizer(language) == TOKENIZERS[language][-1]


def test_unequal_counts_are_refused_with_both() -> None:
    with pytest.raises(DataError, match="2 hypotheses do not match 1 references: one each is needed"):
        score(["a", "b"], ["a"])


def test_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="there is nothing to score: 0 hypotheses, 0 references"):
        score([], [])


def test_a_clear_difference_is_told_from_chance() -> None:
    good, references = some_pairs(200)
    chance = random.Random(1)
    bad = [" ".join(word if chance.random() < 0.6 else "dog" for word in line.split()) for line in good]
    nearly = [good[0] + " grass", *good[1:]]
    for metric, alone in zip(compare(good, bad, references, resamples=200), ("bleu", "chrf"), strict=True):
        assert metric.ours == pytest.approx(getattr(score(good, references, resamples=0), alone))
        assert metric.theirs == pytest.approx(getattr(score(bad, references, resamples=0), alone))
        assert metric.difference > 5 and metric.p_value < 0.02
        assert {"bs:200", "seed:12345"} <= set(metric.signature.split("|"))
    assert all(metric.p_value > 0.05 for metric in compare(good, nearly, references, resamples=200))
    assert compare(good, bad, references, resamples=200) == compare(good, bad, references, resamples=200)


def test_a_system_does_not_differ_from_itself() -> None:
    hypotheses, references = some_pairs()
    assert [(one.difference, one.p_value) for one in compare(hypotheses, hypotheses, references)] == [(0.0, 1.0)] * 2


def test_systems_of_other_lengths_are_not_compared() -> None:
    with pytest.raises(DataError, match="1 hypotheses do not match 2 references"):
        compare(["a", "b"], ["a"], ["a", "b"])
    with pytest.raises(DataError, match="nothing to compare"):
        compare([], [], [])


def test_scores_become_json() -> None:
    found = score(*some_pairs(), resamples=10)
    tree = json.loads(json.dumps(found.as_json()))
    assert tree["bleu"] == found.bleu
    assert tuple(tree["bleu_interval"]) == found.bleu_interval
    assert set(tree) == set(found.__dataclass_fields__)


def test_scoring_text_needs_no_torch() -> None:
    code = "import sys, clearhead.evaluate; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
