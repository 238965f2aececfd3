"""Strings in, strings out, over an engine that knows only ids: what every engine without torch has in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, overload

from clearhead.config import build
from clearhead.engines.directory import Exported
from clearhead.engines.ranking import Floats
from clearhead.errors import DataError
from clearhead.generate.hypothesis import Hypothesis
from clearhead.generate.settings import GenerationConfig
from clearhead.text.tokenizer import TokenizerPair, check_encodable

WINDOW = 1024
"""Lines read ahead, so that those of a length can go together; memory is bounded by this."""


@dataclass(frozen=True)
class Translation:
    """One translation of one text."""

    text: str
    score: float
    """Log-probability normalised for length: what translations are compared by."""
    log_prob: float
    finished: bool
    """False if it was cut at the longest length."""


class Engine(Protocol):
    """What runs a model."""

    name: str

    def check(self, config: GenerationConfig) -> None:
        """Refuse settings that this engine cannot follow."""

    def search(
        self, sources: Sequence[Sequence[int]], config: GenerationConfig, row_keys: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """The hypotheses for the source ids (without control tokens) of any number of texts, best first."""

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Floats:
        """The scores of the token after <s> and after each target token, (target + 1, vocabulary): for comparisons."""


class ExportedTranslator:
    """An exported translator, ready for use."""

    def __init__(self, engine: Engine, tokenizers: TokenizerPair, exported: Exported) -> None:
        self.engine = engine
        self.tokenizers = tokenizers
        self.generation = exported.generation
        self.max_len = exported.notes.max_len
        self.path: Path | None = exported.path

    @overload
    def translate(self, texts: str, **options: Any) -> str: ...
    @overload
    def translate(self, texts: Iterable[str], **options: Any) -> list[str]: ...
    def translate(self, texts: str | Iterable[str], **options: Any) -> str | list[str]:
        """Translate one text or many; options are those of GenerationConfig, such as `beam_size=1`."""
        if isinstance(texts, str):
            return self.translate([texts], **options)[0]
        return [best[0].text for best in self.stream(texts, self.configured(**options))]

    def configured(self, **options: Any) -> GenerationConfig:
        """The model's own settings with some changed; a beam of one is greedy, more is a beam."""
        if "beam_size" in options and "strategy" not in options:
            options["strategy"] = "greedy" if options["beam_size"] == 1 else "beam"
        return build(GenerationConfig, {**self.generation.model_dump(), **options}, "generation")

    def stream(
        self, texts: Iterable[str], config: GenerationConfig, workers: int | None = None
    ) -> Iterator[list[Translation]]:
        """The n best translations of each text, in order, in constant memory; an empty text stays empty.

        How many `workers` there are was said when the engine was opened.
        """
        self.engine.check(config)
        remaining = iter(texts)
        first = 0
        while window := list(islice(remaining, WINDOW)):
            yield from self._window(window, first, config)
            first += len(window)

    def _window(self, texts: Sequence[str], first: int, config: GenerationConfig) -> list[list[Translation]]:
        results = [[Translation("", 0.0, 0.0, True)] for _ in texts]
        filled = [row for row, text in enumerate(texts) if text.strip()]
        ids = self.encode([texts[row] for row in filled], [first + row for row in filled])
        found = self.engine.search(ids, config, [first + row for row in filled])
        for row, best in zip(filled, found, strict=True):
            results[row] = [self._translation(one) for one in best]
        return results

    def encode(self, texts: Sequence[str], numbers: Sequence[int]) -> list[list[int]]:
        """The ids of texts, or which one of them, counted through all, cannot be read."""
        for number, text in zip(numbers, texts, strict=True):
            try:
                check_encodable([text])
            except DataError as error:
                raise DataError(f"text {number + 1:,}: {error}") from None
        encoded = self.tokenizers.source.encode_batch([text.strip() for text in texts])
        for number, ids in zip(numbers, encoded, strict=True):
            if len(ids) + 1 > self.max_len:
                raise DataError(
                    f"text {number + 1:,} has {len(ids):,} tokens, and this model reads at most {self.max_len - 1}: "
                    "split it into sentences"
                )
        return encoded

    def _translation(self, one: Hypothesis) -> Translation:
        # All that any reader may take for the end of a line, so that one line in is one line out.
        text = " ".join(self.tokenizers.target.decode(one.ids).splitlines())
        return Translation(text, one.score, one.log_prob, one.finished)
