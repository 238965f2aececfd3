"""Strings in, strings out: what every translator of texts has in common, and the one over an engine without torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, overload

from clearhead.config import build
from clearhead.engines.by_sentence import by_sentence
from clearhead.engines.directory import Exported
from clearhead.engines.hypotheses import Unwanted, nobody
from clearhead.engines.ranking import Floats
from clearhead.errors import DataError
from clearhead.generate.hypothesis import Hypothesis
from clearhead.generate.settings import GenerationConfig
from clearhead.text.streaming import cut
from clearhead.text.tokenizer import TokenizerPair, check_encodable
from clearhead.text.turns import next_turn

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


class TextTranslator(ABC):
    """A translator ready for use, whatever computes."""

    kind: ClassVar[str] = "translator"

    def __init__(self, tokenizers: TokenizerPair, generation: GenerationConfig, max_len: int) -> None:
        self.tokenizers = tokenizers
        self.generation = generation
        self.max_len = max_len
        self.path: Path | None = None
        """Where it was loaded from."""

    @overload
    def translate(self, texts: str, **options: Any) -> str: ...
    @overload
    def translate(self, texts: Iterable[str], **options: Any) -> list[str]: ...
    def translate(self, texts: str | Iterable[str], **options: Any) -> str | list[str]:
        """Translate one text or many; options are `workers` and those of GenerationConfig, such as `beam_size=1`.

        With `by_sentence=True` a text of several sentences is taken apart and put together again.
        """
        if isinstance(texts, str):
            return self.translate([texts], **options)[0]
        workers, stream = options.pop("workers", None), self.lines
        if options.pop("by_sentence", False):
            stream = self.lines_by_sentence
        return list(stream(texts, self.configured(**options), workers))

    def lines(self, texts: Iterable[str | None], config: GenerationConfig, workers: int | None = None) -> Iterator[str]:
        """The best translation of each text, as `stream` has it, without its scores."""
        return (best[0].text for best in self.stream(texts, config, workers, scored=False))

    def lines_by_sentence(
        self, texts: Iterable[str | None], config: GenerationConfig, workers: int | None = None
    ) -> Iterator[str]:
        """The same, each text taken apart into sentences and put together again; none is too long."""
        return by_sentence(texts, lambda some: self.lines(some, config, workers), self.count, self.max_len)

    def count(self, text: str) -> int:
        """The tokens of a text, the end included."""
        return len(self.tokenizers.source.encode(text)) + 1

    def configured(self, **options: Any) -> GenerationConfig:
        """The model's own settings with some changed; a beam of one is greedy, more is a beam."""
        if "beam_size" in options and "strategy" not in options:
            options["strategy"] = "greedy" if options["beam_size"] == 1 else "beam"
        return build(GenerationConfig, {**self.generation.model_dump(), **options}, "generation")

    @abstractmethod
    def stream(
        self,
        texts: Iterable[str | None],
        config: GenerationConfig,
        workers: int | None = None,
        *,
        scored: bool = True,
    ) -> Iterator[list[Translation]]:
        """The n best translations of each text, in order, in constant memory; an empty text stays empty.

        Texts are read ahead, as far as a None, which says that no more will come for a while. Scores that are not
        wanted (`scored`) may be left out, where that is faster: they are nan then.
        """

    def encode(self, texts: Sequence[str], first: int) -> list[list[int]]:
        """The ids of texts, or which one of them, counted from `first` on, cannot be read."""
        try:
            encoded = self.tokenizers.source.encode_batch([text.strip() for text in texts])
        except DataError:
            for row, text in enumerate(texts):
                _check_encodable(text, first + row + 1)
            raise
        for row, ids in enumerate(encoded):
            if len(ids) + 1 > self.max_len:
                raise DataError(
                    f"text {first + row + 1:,} has {len(ids):,} tokens, and this model reads at most "
                    f"{self.max_len - 1}: split it into sentences (translate --by-sentence does)"
                )
        return encoded

    def as_texts(self, found: Sequence[Sequence[Hypothesis]], config: GenerationConfig) -> list[list[Translation]]:
        """Hypotheses as their readers see them, each up to the first text that it was to stop at."""
        texts = iter(self.tokenizers.target.decode_batch(one.ids for best in found for one in best))
        return [[_shown(one, next(texts), config) for one in best] for best in found]


def _shown(one: Hypothesis, whole: str, config: GenerationConfig) -> Translation:
    before = cut(whole, config.stop)
    # All that any reader may take for the end of a line, so that one line in is one line out.
    text = " ".join((whole if before is None else before).splitlines())
    return Translation(text, one.score, one.log_prob, one.finished)


class Engine(Protocol):
    """What runs an exported model."""

    name: str

    def check(self, config: GenerationConfig) -> None:
        """Refuse settings that this engine cannot follow."""

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: GenerationConfig,
        row_keys: Sequence[int],
        unwanted: Unwanted = nobody,
        *,
        scored: bool = True,
    ) -> list[list[Hypothesis]]:
        """The hypotheses for the source ids (without control tokens) of any number of texts, best first.

        `unwanted` is asked as it goes: what nobody waits for any more is given up as soon as the engine can. Scores
        that are not wanted (`scored`) may be left out: they are nan then.
        """

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Floats:
        """The scores of the token after <s> and after each target token, (target + 1, vocabulary): for comparisons."""


class ExportedTranslator(TextTranslator):
    """A translator that an engine runs; how many cores it uses was said when it was opened."""

    def __init__(self, engine: Engine, tokenizers: TokenizerPair, exported: Exported) -> None:
        super().__init__(tokenizers, exported.generation, exported.notes.max_len)
        self.engine = engine
        self.path = exported.path

    def stream(
        self,
        texts: Iterable[str | None],
        config: GenerationConfig,
        workers: int | None = None,
        *,
        scored: bool = True,
    ) -> Iterator[list[Translation]]:
        self.engine.check(config)
        remaining = iter(texts)
        first = 0
        while window := next_turn(remaining, WINDOW):
            yield from self._window(window, first, config, scored=scored)
            first += len(window)

    def _window(
        self, texts: Sequence[str], first: int, config: GenerationConfig, *, scored: bool
    ) -> list[list[Translation]]:
        results = [[Translation("", 0.0, 0.0, True)] for _ in texts]
        ids = self.encode(texts, first)
        filled = [row for row, text in enumerate(texts) if text.strip()]
        keys = [first + row for row in filled]
        found = self.engine.search([ids[row] for row in filled], config, keys, scored=scored)
        for row, best in zip(filled, self.as_texts(found, config), strict=True):
            results[row] = best
        return results


def _check_encodable(text: str, number: int) -> None:
    try:
        check_encodable([text])
    except DataError as error:
        raise DataError(f"text {number:,}: {error}") from None
