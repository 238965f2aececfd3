"""A model on another engine in, a backend out: CTranslate2 and ONNX Runtime take whole batches, and need no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clearhead.engines.texts import ExportedTranslator
from clearhead.generate.settings import GenerationConfig
from clearhead.serve.backends import Lane, Translated, TranslateOptions, Watch

BATCH_TOKENS = 4096
"""Source tokens, padding included, that are translated side by side."""
BATCH_ROWS = 32
"""Texts that are translated side by side: small batches on every core are faster than a large one on all."""
ALONE = {("onnx", "int8")}
"""Engines and quantisations that give a batch one scale: nothing is put beside a text, or it would become another."""


class EngineTranslator:
    """A translator on another engine, for batches of texts; as many may be under way at once as its lane is wide."""

    most_tokens = BATCH_TOKENS

    def __init__(self, exported: ExportedTranslator, lane: Lane, quantize: str | None = None) -> None:
        # Settings that the engine cannot follow are refused now, not when somebody asks.
        exported.engine.check(exported.generation)
        self._exported = exported
        self.lane = lane
        self.most_rows = 1 if (exported.engine.name, quantize) in ALONE else BATCH_ROWS
        self.longest = exported.max_len

    def count(self, text: str) -> int:
        """The tokens of a text, the end included."""
        return len(self._exported.tokenizers.source.encode(text)) + 1

    def translate_batch(self, texts: Sequence[str], options: TranslateOptions, watch: Watch) -> list[list[Translated]]:
        """The translations of each text, best first; rows that are unwanted by now are not begun."""
        exported = self._exported
        config = exported.configured(**wishes(options, exported.generation))
        gone = set(watch.unwanted())
        wanted = [place for place in range(len(texts)) if place not in gone]
        ids = exported.tokenizers.source.encode_batch([texts[place] for place in wanted])
        found = [[Translated("", 0.0)] for _ in texts]
        for place, best in zip(wanted, exported.engine.search(ids, config, wanted) if wanted else (), strict=True):
            shown = (exported.as_text(one, config) for one in best)
            found[place] = [Translated(one.text, one.score) for one in shown]
        return found


def translator_parts(exported: ExportedTranslator, lane: Lane, quantize: str | None) -> dict[str, Any]:
    """What a translator is asked through."""
    return {"translator": EngineTranslator(exported, lane, quantize)}


PARTS = {"translator": translator_parts}
"""By the kind of model, the fields of Served that its backends are."""


def wishes(options: TranslateOptions, generation: GenerationConfig) -> dict[str, Any]:
    """What a search is asked for: a beam grows with the number of results, and a model without one gets it."""
    if options.results == 1:
        return {"nbest": 1}
    return {"nbest": options.results, "beam_size": max(options.results, generation.beam_size)}
