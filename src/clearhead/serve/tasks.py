"""What a batch is made of: a backend, its options, and what it is asked to do; rows of equal tasks go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clearhead.serve.backends import (
    Inspector,
    Label,
    Looked,
    Prompt,
    TextClassifier,
    TextTranslator,
    Translated,
    TranslateOptions,
    Watch,
    WriteOptions,
    Writer,
    Written,
)


@dataclass(frozen=True)
class Translating:
    """Texts are translated."""

    backend: TextTranslator
    options: TranslateOptions

    def compute(self, rows: Sequence[str], watch: Watch) -> Sequence[Sequence[Translated]]:
        """The translations of a batch."""
        return self.backend.translate_batch(rows, self.options, watch)


@dataclass(frozen=True)
class Writing:
    """Texts are continued."""

    backend: Writer
    options: WriteOptions

    def compute(self, rows: Sequence[Prompt], watch: Watch) -> Sequence[Written]:
        """The continuations of a batch."""
        return self.backend.write_batch(rows, self.options, watch)


@dataclass(frozen=True)
class Classifying:
    """Texts are given labels."""

    backend: TextClassifier

    def compute(self, rows: Sequence[str], watch: Watch) -> Sequence[Sequence[Label]]:
        """The labels of a batch."""
        return self.backend.classify_batch(rows, watch)


@dataclass(frozen=True)
class Look:
    """One look inside."""

    text: str
    target: str | None
    ablate: tuple[str, ...]


@dataclass(frozen=True)
class Looking:
    """A model is looked into, one text at a time."""

    backend: Inspector

    def compute(self, rows: Sequence[Look], watch: Watch) -> Sequence[Looked]:
        """What was found in each text."""
        return [self.backend.look(row.text, row.target, row.ablate) for row in rows]
