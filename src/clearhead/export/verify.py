"""Two speakers, the original and the exported, and texts in; how far they are from one another out.

Scores are compared along the original's own greedy answers, so both are asked for the same. Speed, BLEU and accuracy
are of the model's own settings: what its users get. What is compared of a kind of model has a line in WORDS.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from clearhead.evaluate import score

COMPARED = 32
"""Texts along which all scores are compared."""
WARM_UP = 4


class Speaker(Protocol):
    """A model with all that it needs to answer, ready to be compared; a text may be a picture."""

    def greedy(self, texts: Sequence[Any]) -> list[tuple[int, ...]]:
        """The likeliest tokens each time, or the likeliest label."""

    def logits(self, text: Any, target: Sequence[int]) -> NDArray[np.float32]:
        """The scores at each step along an answer that `greedy` gave."""

    def answers(self, texts: Sequence[Any]) -> list[str]:
        """What users get, by the model's own settings."""


class Words(NamedTuple):
    """How to speak of the comparison of one kind of model."""

    texts: str = "texts"
    same_step: str | None = "same next token"
    """What it means that both agree on a step; None where an answer is one step."""
    same_answer: str = "same greedy output"
    decides: str | None = None
    """What decides about a quantised model where there are test data."""


WORDS: dict[str, Words] = {
    "translator": Words(decides="BLEU"),
    "gpt": Words(),
    "bert": Words(same_step="same token in a gap", same_answer="same text"),
    "classifier": Words(same_step=None, same_answer="same label", decides="accuracy"),
    "vit": Words("pictures", same_step=None, same_answer="same label", decides="accuracy"),
}
"""By the kind of model."""


class Tolerance(NamedTuple):
    """How far apart is too far."""

    logits: float | None
    """The largest difference of a score; None for any."""
    identical: float
    """The smallest share of texts with the same greedy tokens."""
    agreement: float
    """The smallest share of steps at which both would say the same next."""
    bleu: float = 0.5
    """How much BLEU may be lost."""
    accuracy: float = 0.5
    """How many points of accuracy, of a hundred, may be lost."""


EXACT = Tolerance(logits=1e-3, identical=0.99, agreement=0.99)
QUANTISED = Tolerance(logits=None, identical=0.0, agreement=0.9)


@dataclass(frozen=True)
class Side:
    """What was measured of one of the two."""

    size: int
    """Bytes on disk, of the model alone."""
    per_second: float
    """Texts, or pictures, that are answered in a second."""
    bleu: float | None = None
    accuracy: float | None = None
    """The share of right labels."""


@dataclass(frozen=True)
class Parity:
    """Original and exported side by side."""

    engine: str
    quantize: str | None
    texts: int
    origin: str
    """Where the texts come from."""
    logit_difference: float
    """The largest, over all compared scores."""
    agreement: float
    """The share of steps, along the original's answers, at which both would say the same next."""
    identical: float
    """The share of texts with the same greedy tokens, or the same label."""
    original: Side
    exported: Side
    bleu_signature: str | None = None
    kind: str = "translator"

    def problems(self, tolerance: Tolerance) -> list[str]:
        """What is past the tolerance."""
        found = []
        if tolerance.logits is not None and not self.logit_difference <= tolerance.logits:
            found.append(f"scores differ by up to {self.logit_difference:.2g} (at most {tolerance.logits:g})")
        if self.identical < tolerance.identical:
            found.append(
                f"only {_share(self.identical)} of the outputs are the same (at least {tolerance.identical:.0%})"
            )
        if self.original.bleu is not None and self.exported.bleu is not None:
            lost = self.original.bleu - self.exported.bleu
            if not lost <= tolerance.bleu:
                found.append(f"BLEU falls by {lost:.2f}, to {self.exported.bleu:.2f} (at most {tolerance.bleu:g})")
        elif self.original.accuracy is not None and self.exported.accuracy is not None:
            lost = 100 * (self.original.accuracy - self.exported.accuracy)
            if not lost <= tolerance.accuracy:
                now = f"{100 * self.exported.accuracy:.2f} %"
                found.append(f"accuracy falls by {lost:.2f} points, to {now} (at most {tolerance.accuracy:g})")
        elif (agreed := self._agreed) < tolerance.agreement:
            words = WORDS[self.kind]
            what = (words.same_step or words.same_answer).removeprefix("same ")
            unit = "steps" if words.same_step else words.texts
            better = f"; with test data {words.decides} decides" if words.decides else ""
            found.append(
                f"both agree on the {what} in only {_share(agreed)} of all {unit} "
                f"(at least {tolerance.agreement:.0%}{better})"
            )
        return found

    @property
    def _agreed(self) -> float:
        """The share of steps, or of whole answers where these are one step."""
        return self.agreement if WORDS[self.kind].same_step else self.identical

    def table(self) -> list[tuple[str, str, str]]:
        """Rows of a name, the original's figure and the exported's."""
        words = WORDS[self.kind]
        rows = [
            ("size", f"{self.original.size / 1e6:.1f} MB", f"{self.exported.size / 1e6:.1f} MB"),
            (f"{words.texts} a second", f"{self.original.per_second:,.1f}", f"{self.exported.per_second:,.1f}"),
            ("largest difference of a score", "", f"{self.logit_difference:.2g}"),
        ]
        if words.same_step:
            rows.append((words.same_step, "", f"{_share(self.agreement)} of steps"))
        rows.append((words.same_answer, "", f"{_share(self.identical)} of {self.texts:,} {words.texts}"))
        if self.original.bleu is not None and self.exported.bleu is not None:
            rows.append(("BLEU", f"{self.original.bleu:.2f}", f"{self.exported.bleu:.2f}"))
        if self.original.accuracy is not None and self.exported.accuracy is not None:
            rows.append(("accuracy", f"{100 * self.original.accuracy:.2f} %", f"{100 * self.exported.accuracy:.2f} %"))
        return rows

    def as_json(self) -> dict[str, Any]:
        """Names and plain values, ready for a JSON file."""
        return asdict(self)

    def section(self) -> str:
        """The same for a model card."""
        how = f" with {self.quantize} weights" if self.quantize else ""
        head = [
            f"Exported for {self.engine}{how} by `clearhead export`, and compared with the original on "
            f"{self.texts:,} {WORDS[self.kind].texts} ({self.origin}) before it was written.",
            "",
            "| | original | exported |",
            "|---|---|---|",
        ]
        signature = ["", f"BLEU: `{self.bleu_signature}`"] if self.bleu_signature else []
        return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in self.table()), *signature])


def compare(
    original: Speaker,
    exported: Speaker,
    texts: Sequence[Any],
    references: Sequence[str] | None = None,
    *,
    sizes: tuple[int, int],
    engine: str,
    quantize: str | None,
    origin: str,
    language: str | None = None,
    kind: str = "translator",
) -> Parity:
    """Let both do the same; `references` are translations, or true labels."""
    ours, theirs = original.greedy(texts), exported.greedy(texts)
    difference, agreement = _scores_apart(original, exported, texts[:COMPARED], ours[:COMPARED])
    sides = []
    signature = None
    for speaker, size in zip((original, exported), sizes, strict=True):
        found, seconds = _timed(speaker, texts)
        bleu: float | None = None
        accuracy: float | None = None
        if references is not None and WORDS[kind].decides == "BLEU":
            scores = score(found, references, target_language=language, resamples=0)
            bleu, signature = scores.bleu, scores.bleu_signature
        elif references is not None and WORDS[kind].decides == "accuracy":
            accuracy = sum(map(str.__eq__, found, references)) / len(found)
        sides.append(Side(size, len(texts) / max(seconds, 1e-9), bleu, accuracy))
    return Parity(
        engine=engine,
        quantize=quantize,
        texts=len(texts),
        origin=origin,
        logit_difference=difference,
        agreement=agreement,
        identical=sum(map(tuple.__eq__, ours, theirs)) / len(texts),
        original=sides[0],
        exported=sides[1],
        bleu_signature=signature,
        kind=kind,
    )


def _scores_apart(
    original: Speaker, exported: Speaker, texts: Sequence[Any], targets: Sequence[tuple[int, ...]]
) -> tuple[float, float]:
    """The largest difference of a score, and the share of steps at which both would say the same next."""
    largest, same = 0.0, []
    for text, target in zip(texts, targets, strict=True):
        ours, theirs = original.logits(text, target), exported.logits(text, target)
        apart = float(np.abs(ours - theirs).max())
        # A NaN is as far away as anything can be, and must not be lost in a comparison.
        largest = max(largest, apart) if np.isfinite(apart) else float("inf")
        same.append(ours.argmax(-1) == theirs.argmax(-1))
    return largest, float(np.concatenate(same).mean())


def _timed(speaker: Speaker, texts: Sequence[Any]) -> tuple[list[str], float]:
    speaker.answers(texts[:WARM_UP])
    began = time.perf_counter()
    found = speaker.answers(texts)
    return found, time.perf_counter() - began


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"
