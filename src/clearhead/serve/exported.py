"""An exported translator in, a backend out: CTranslate2 and ONNX Runtime take whole batches, and need no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from clearhead.generate.settings import GenerationConfig
from clearhead.serve.backends import Lane, Translated, TranslateOptions, Watch
from clearhead.text.tokenizer import TokenizerPair

BATCH_TOKENS = 4096
"""Source tokens, padding included, that are translated side by side."""
BATCH_ROWS = 32
"""Texts that are translated side by side: small batches on every core are faster than a large one on all."""


class Searching(Protocol):
    """What runs an exported model."""

    def check(self, config: GenerationConfig) -> None:
        """Refuse settings that it cannot follow."""

    def search(
        self, sources: Sequence[Sequence[int]], config: GenerationConfig, row_keys: Sequence[int]
    ) -> Sequence[Sequence[Any]]:
        """The hypotheses for source ids, best first."""


class Exported(Protocol):
    """An exported translator, as it is opened."""

    tokenizers: TokenizerPair
    generation: GenerationConfig
    max_len: int

    @property
    def engine(self) -> Searching:
        """What runs it."""

    def configured(self, **options: Any) -> GenerationConfig:
        """The model's own settings with some changed."""

    def as_text(self, one: Any) -> Any:
        """A hypothesis as its reader sees it: with `text` and `score`."""


class ExportedTranslator:
    """An exported translator, for batches of texts; several batches may be under way at once, one on each core."""

    most_tokens = BATCH_TOKENS
    most_rows = BATCH_ROWS

    def __init__(self, exported: Exported, name: str, cores: int) -> None:
        self._exported = exported
        self.lane = Lane(name, cores)
        self.longest = exported.max_len

    def count(self, text: str) -> int:
        """The tokens of a text, the end included."""
        return len(self._exported.tokenizers.source.encode(text)) + 1

    def translate_batch(self, texts: Sequence[str], options: TranslateOptions, watch: Watch) -> list[list[Translated]]:
        """The translations of each text, best first; rows that are unwanted by now are not begun."""
        exported = self._exported
        config = exported.configured(**wishes(options, exported.generation))
        exported.engine.check(config)
        gone = set(watch.unwanted())
        wanted = [place for place in range(len(texts)) if place not in gone]
        ids = exported.tokenizers.source.encode_batch([texts[place] for place in wanted])
        found = [[Translated("", 0.0)] for _ in texts]
        for place, best in zip(wanted, exported.engine.search(ids, config, wanted) if wanted else (), strict=True):
            shown = map(exported.as_text, best)
            found[place] = [Translated(one.text, one.score) for one in shown]
        return found


def wishes(options: TranslateOptions, generation: GenerationConfig) -> dict[str, Any]:
    """What a search is asked for: a beam grows with the number of results, and a model without one gets it."""
    if options.results == 1:
        return {"nbest": 1}
    return {"nbest": options.results, "beam_size": max(options.results, generation.beam_size)}
