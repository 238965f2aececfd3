"""A classifier of texts on any engine in, a backend out."""

from __future__ import annotations

from collections.abc import Sequence

from clearhead.engines.classifying import BATCH_TOKENS, TextClassifier
from clearhead.serve.backends import Label, Lane, Watch

BATCH_ROWS = 512
"""Texts that are read side by side."""


class Labeller:
    """A classifier, for batches of texts."""

    most_tokens = BATCH_TOKENS

    def __init__(self, model: TextClassifier, lane: Lane, most_rows: int | None = None) -> None:
        self._model = model
        self.lane = lane
        self.most_rows = most_rows or BATCH_ROWS

    def count(self, text: str) -> int:
        """The tokens of a text, both ends included."""
        return len(self._model.tokenizers.source.encode(text)) + 2

    def classify_batch(self, texts: Sequence[str], watch: Watch) -> list[list[Label]]:
        """The labels of each text, likeliest first; an empty text has none."""
        return [
            sorted(
                (Label(name, share) for name, share in one.probabilities.items()), key=lambda label: -label.probability
            )
            for one in self._model.stream(texts)
        ]
