"""Translations and references in, published-style scores with their signatures and confidence intervals out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from clearhead.errors import DataError
from clearhead.text.script import language_of_signs

Interval = tuple[float, float]

# sacreBLEU draws all resamples at once, at about 70 bytes for each line of each: this many lines are 700 MB.
MOST_LINES_DRAWN = 10_000_000

# What sacreBLEU asks for where words are not set apart by spaces. Some need an extra package: the next one does not.
TOKENIZERS: dict[str, tuple[str, ...]] = {"zh": ("zh",), "ja": ("ja-mecab", "char"), "ko": ("ko-mecab", "char")}
OTHER_CODES = {"cmn": "zh", "zho": "zh", "chi": "zh", "yue": "zh", "jpn": "ja", "kor": "ko"}


@dataclass(frozen=True)
class Scores:
    """How close hypotheses come to their references."""

    count: int
    """How many pairs were compared."""
    bleu: float
    """Cased BLEU, 0 to 100."""
    bleu_interval: Interval | None
    """Its 95 % confidence interval, None if no resamples were asked for."""
    bleu_signature: str
    """What makes the number comparable: sacreBLEU's version and settings."""
    chrf: float
    """chrF2, 0 to 100."""
    chrf_interval: Interval | None
    chrf_signature: str
    exact_match: float
    """The share, 0 to 1, of hypotheses that equal their reference but for space around them."""

    def as_json(self) -> dict[str, Any]:
        """Names and plain values, ready for a JSON file."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    target_language: str | None = None,
    resamples: int = 1000,
    seed: int = 12345,
) -> Scores:
    """Score hypotheses against one reference each; `resamples` = 0 leaves the confidence intervals out.

    Beyond 10,000 lines fewer resamples are drawn than asked for, to fit in memory; the signature says how many.
    """
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses)} hypotheses do not match {len(references)} references: one each is needed")
    if not hypotheses:
        raise DataError("there is nothing to score: 0 hypotheses, 0 references")
    # `force` only silences a warning about text that looks tokenised; it changes no score.
    bleu_metric = BLEU(tokenize=bleu_tokenizer(target_language, references), force=True)
    bleu, bleu_interval = _measure(bleu_metric, hypotheses, references, resamples, seed)
    chrf_metric = CHRF()
    chrf, chrf_interval = _measure(chrf_metric, hypotheses, references, resamples, seed)
    equal = sum(ours.strip() == wanted.strip() for ours, wanted in zip(hypotheses, references, strict=True))
    return Scores(
        count=len(hypotheses),
        bleu=bleu,
        bleu_interval=bleu_interval,
        bleu_signature=str(bleu_metric.get_signature()),
        chrf=chrf,
        chrf_interval=chrf_interval,
        chrf_signature=str(chrf_metric.get_signature()),
        exact_match=equal / len(hypotheses),
    )


@dataclass(frozen=True)
class Comparison:
    """One measure of two systems on the same texts, and how likely chance alone makes such a difference."""

    metric: str
    ours: float
    theirs: float
    p_value: float
    """Of paired bootstrap resampling, two-sided: below 0.05 a difference is commonly called significant."""
    signature: str

    @property
    def difference(self) -> float:
        """How much better ours is."""
        return self.ours - self.theirs


def compare(
    ours: Sequence[str],
    theirs: Sequence[str],
    references: Sequence[str],
    *,
    target_language: str | None = None,
    resamples: int = 1000,
    seed: int = 12345,
) -> list[Comparison]:
    """BLEU and chrF of two systems' translations of the same texts, with a paired test of their difference."""
    for side in (ours, theirs):
        if len(side) != len(references):
            raise DataError(f"{len(side)} hypotheses do not match {len(references)} references: one each is needed")
    if not references:
        raise DataError("there is nothing to compare: 0 hypotheses, 0 references")
    metrics = {"BLEU": BLEU(tokenize=bleu_tokenizer(target_language, references), force=True), "chrF": CHRF()}
    for metric in metrics.values():
        _let_scores_be_plain_numbers(metric)
    systems = [("theirs", theirs), ("ours", ours)]
    with _sacrebleu_seed(seed):
        test = PairedTest(
            systems, metrics, [references], test_type="bs", n_samples=_fitting(resamples, len(references))
        )
        signatures, results = test()
    found: dict[str, list[Any]] = dict(results)
    # sacreBLEU calls a system significantly different from itself.
    is_same = list(ours) == list(theirs)
    return [
        Comparison(
            metric=shown,
            ours=min(float(found[name][1].score), 100.0),
            theirs=min(float(found[name][0].score), 100.0),
            p_value=1.0 if is_same else float(found[name][1].p_value),
            signature=str(signatures[name]),
        )
        for shown, name in zip(metrics, signatures, strict=True)
    ]


def tokenised_bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, resamples: int = 1000, seed: int = 12345
) -> tuple[float, Interval | None]:
    """Corpus BLEU of texts that are tokens with spaces between them already, unsmoothed, with its interval.

    Beyond 10,000 lines fewer resamples are drawn than asked for, to fit in memory.
    """
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    return _measure(metric, hypotheses, references, resamples, seed)


def bleu_tokenizer(language: str | None, references: Sequence[str] = ()) -> str:
    """The name of sacreBLEU's tokenizer for a language code such as `de`, `zh-CN` or `ja_JP`: the first that works.

    Without a code the references tell whether they are written without spaces: by 13a a sentence would be one word.

    >>> bleu_tokenizer("zh-CN"), bleu_tokenizer("de"), bleu_tokenizer(None), bleu_tokenizer(None, ["我吃了。"])
    ('zh', '13a', '13a', 'zh')
    """
    code = language if language is not None else language_of_signs(references)
    primary = primary_code(code or "")
    for name in TOKENIZERS.get(OTHER_CODES.get(primary, primary), ()):
        try:
            BLEU(tokenize=name)
        except RuntimeError:
            continue
        return name
    return "13a"


def likeness(text: str, references: Iterable[str]) -> float:
    """How like a text is to one of its references, the one that is most like it: chrF, from 0 to 100.

    >>> likeness("He is here.", ["She is there.", "He is here."])
    100.0
    """
    metric = CHRF()
    return max(metric.sentence_score(text, [reference]).score for reference in references)


def primary_code(language: str) -> str:
    """A language code without region and script, in small letters.

    >>> primary_code("de"), primary_code("en_US"), primary_code("ZH-Hans-CN")
    ('de', 'en', 'zh')
    """
    return re.split("[-_]", language.lower())[0]


def _fitting(resamples: int, count: int) -> int:
    """How many resamples of so many lines are drawn: as many as asked for, or as fit in memory."""
    return min(resamples, max(MOST_LINES_DRAWN // max(count, 1), 2))


def _measure(
    metric: Any, hypotheses: Sequence[str], references: Sequence[str], resamples: int, seed: int
) -> tuple[float, Interval | None]:
    _let_scores_be_plain_numbers(metric)
    resamples = _fitting(resamples, len(references))
    with _sacrebleu_seed(seed):
        found = metric.corpus_score(hypotheses, [references], n_bootstrap=resamples)
    # BLEU of a perfect match comes out a rounding error above 100.
    point = min(float(found.score), 100.0)
    if resamples < 2:
        return point, None
    # sacreBLEU centres the interval on the mean of the resamples, which on small sets can miss the score itself.
    mean, half = float(found._mean), float(found._ci)
    low, high = max(mean - half, 0.0), min(mean + half, 100.0)
    return point, (min(low, point), max(high, point))


def _let_scores_be_plain_numbers(metric: Any) -> None:
    """sacreBLEU adds up the scores of resamples and fails when some are zero (float) and others are not (float32)."""
    compute = metric._compute_score_from_stats

    def plain(stats: Any) -> Any:
        found = compute(stats)
        found.score = float(found.score)
        return found

    metric._compute_score_from_stats = plain


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Set the one place where sacreBLEU looks for its seed, and put back what was there."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before
