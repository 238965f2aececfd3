"""Two speakers, the original and the exported, and texts in; how far they are from one another out.

Scores are compared along the original's own greedy translations, so both are asked for the same. Speed and BLEU are of
the model's own settings: what its users get.
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
    """A model with its tokenizers, ready to be compared."""

    def greedy(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """The likeliest tokens each time."""

    def logits(self, text: str, target: Sequence[int]) -> NDArray[np.float32]:
        """The scores of the token at the start and after each target token."""

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translations by the model's own settings."""


class Tolerance(NamedTuple):
    """How far apart is too far."""

    logits: float | None
    """The largest difference of a score; None for any."""
    identical: float
    """The smallest share of texts with the same greedy tokens."""
    agreement: float
    """The smallest share of steps at which both would say the same next."""
    bleu: float
    """How much BLEU may be lost."""


EXACT = Tolerance(logits=1e-3, identical=0.99, agreement=0.99, bleu=0.5)
QUANTISED = Tolerance(logits=None, identical=0.0, agreement=0.9, bleu=0.5)


@dataclass(frozen=True)
class Side:
    """What was measured of one of the two."""

    size: int
    """Bytes on disk, of the model alone."""
    per_second: float
    """Texts translated in a second."""
    bleu: float | None


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
    """The share of steps, along the original's translations, at which both would say the same next."""
    identical: float
    """The share of texts with the same greedy tokens."""
    original: Side
    exported: Side
    bleu_signature: str | None

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
            if lost > tolerance.bleu:
                found.append(f"BLEU falls by {lost:.2f}, to {self.exported.bleu:.2f} (at most {tolerance.bleu:g})")
        elif self.agreement < tolerance.agreement:
            found.append(
                f"both agree on the next token in only {_share(self.agreement)} of all steps "
                f"(at least {tolerance.agreement:.0%}; with test data BLEU decides)"
            )
        return found

    def table(self) -> list[tuple[str, str, str]]:
        """Rows of a name, the original's figure and the exported's."""
        rows = [
            ("size", f"{self.original.size / 1e6:.1f} MB", f"{self.exported.size / 1e6:.1f} MB"),
            ("texts a second", f"{self.original.per_second:,.1f}", f"{self.exported.per_second:,.1f}"),
            ("largest difference of a score", "", f"{self.logit_difference:.2g}"),
            ("same next token", "", f"{_share(self.agreement)} of steps"),
            ("same greedy output", "", f"{_share(self.identical)} of {self.texts:,} texts"),
        ]
        if self.original.bleu is not None and self.exported.bleu is not None:
            rows.append(("BLEU", f"{self.original.bleu:.2f}", f"{self.exported.bleu:.2f}"))
        return rows

    def as_json(self) -> dict[str, Any]:
        """Names and plain values, ready for a JSON file."""
        return asdict(self)

    def section(self) -> str:
        """The same for a model card."""
        how = f" with {self.quantize} weights" if self.quantize else ""
        head = [
            f"Exported for {self.engine}{how} by `clearhead export`, and compared with the original on "
            f"{self.texts:,} texts ({self.origin}) before it was written.",
            "",
            "| | original | exported |",
            "|---|---|---|",
        ]
        signature = ["", f"BLEU: `{self.bleu_signature}`"] if self.bleu_signature else []
        return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in self.table()), *signature])


def compare(
    original: Speaker,
    exported: Speaker,
    texts: Sequence[str],
    references: Sequence[str] | None = None,
    *,
    sizes: tuple[int, int],
    engine: str,
    quantize: str | None,
    origin: str,
    language: str | None = None,
) -> Parity:
    """Let both do the same."""
    ours, theirs = original.greedy(texts), exported.greedy(texts)
    difference, agreement = _scores_apart(original, exported, texts[:COMPARED], ours[:COMPARED])
    sides = []
    signature = None
    for speaker, size in zip((original, exported), sizes, strict=True):
        found, seconds = _timed(speaker, texts)
        bleu = None
        if references is not None:
            scores = score(found, references, target_language=language, resamples=0)
            bleu, signature = scores.bleu, scores.bleu_signature
        sides.append(Side(size, len(texts) / max(seconds, 1e-9), bleu))
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
    )


def _scores_apart(
    original: Speaker, exported: Speaker, texts: Sequence[str], targets: Sequence[tuple[int, ...]]
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


def _timed(speaker: Speaker, texts: Sequence[str]) -> tuple[list[str], float]:
    speaker.translate(texts[:WARM_UP])
    began = time.perf_counter()
    found = speaker.translate(texts)
    return found, time.perf_counter() - began


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"
