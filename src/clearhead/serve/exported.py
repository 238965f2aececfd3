"""A model on another engine in, a backend out: CTranslate2 and ONNX Runtime take whole batches, and need no torch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from clearhead.engines.classifying import ExportedClassifier
from clearhead.engines.hypotheses import State, ended
from clearhead.engines.ranking import Floats, Ids
from clearhead.engines.texts import ExportedTranslator
from clearhead.engines.writing import ExportedWriter, WritingEngine
from clearhead.generate.settings import GenerationConfig
from clearhead.serve.backends import Lane, Translated, TranslateOptions, Watch
from clearhead.serve.continuing import Continuer
from clearhead.serve.labelling import Labeller

BATCH_TOKENS = 4096
"""Source tokens, padding included, that are translated side by side."""
BATCH_ROWS = 32
"""Texts that are translated side by side: small batches on every core are faster than a large one on all."""
BEAM_ROWS = 16
"""The same for beams on CTranslate2, which finishes what it has begun though nobody waits for it any more."""
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
        is_unstoppable = exported.engine.name == "ctranslate2" and exported.generation.strategy == "beam"
        self.most_rows = most_rows(exported, quantize) or (BEAM_ROWS if is_unstoppable else BATCH_ROWS)
        self.longest = exported.max_len

    def count(self, text: str) -> int:
        """The tokens of a text, the end included."""
        return self._exported.count(text)

    def translate_batch(self, texts: Sequence[str], options: TranslateOptions, watch: Watch) -> list[list[Translated]]:
        """The translations of each text, best first; rows that are unwanted are not begun, or given up on the way."""
        exported = self._exported
        config = exported.configured(**wishes(options, exported.generation))
        gone = set(watch.unwanted())
        wanted = [place for place in range(len(texts)) if place not in gone]
        ids = exported.tokenizers.source.encode_batch([texts[place] for place in wanted])
        found = [[Translated("", 0.0)] for _ in texts]

        def left() -> list[int]:
            gone = set(watch.unwanted())
            return [row for row, place in enumerate(wanted) if place in gone]

        searched = exported.engine.search(ids, config, wanted, left) if wanted else []
        for place, best in zip(wanted, exported.as_texts(searched, config), strict=True):
            found[place] = [Translated(one.text, one.score) for one in best]
        return found


class Placed(NamedTuple):
    """An engine's state that knows which row of the batch each of its rows comes from."""

    state: State
    place: Ids

    def select(self, rows: Ids) -> Placed:
        """These rows, in this order."""
        return Placed(self.state.select(rows), self.place[rows])


class Leaving:
    """An engine whose rows end at the next step when nobody waits for them any more: the twin of torch's."""

    def __init__(self, engine: WritingEngine, watch: Watch) -> None:
        self.name = engine.name
        self.read = engine.read
        self._engine = engine
        self._watch = watch

    def start(self, seen: Ids) -> Placed:
        """What generation carries from step to step."""
        return Placed(self._engine.start(seen), np.arange(len(seen)))

    def step(self, ids: Ids, state: Placed) -> tuple[Floats, Placed]:
        """The logits of the next tokens; for rows that are unwanted, only the end is possible."""
        logits, after = self._engine.step(ids, state.state)
        return ended(logits, np.isin(state.place, self._watch.unwanted())), Placed(after, state.place)


def leaving(exported: ExportedWriter, watch: Watch) -> ExportedWriter:
    """The same model, but that rows that are unwanted by now end at its next step."""
    same = copy.copy(exported)
    same.engine = Leaving(exported.engine, watch)
    return same


def most_rows(exported: ExportedTranslator | ExportedWriter | ExportedClassifier, quantize: str | None) -> int | None:
    """How many rows may go side by side, if not as many as fit."""
    return 1 if (exported.engine.name, quantize) in ALONE else None


def translator_parts(exported: ExportedTranslator, lane: Lane, quantize: str | None) -> dict[str, Any]:
    """What a translator is asked through."""
    return {"translator": EngineTranslator(exported, lane, quantize)}


def gpt_parts(exported: ExportedWriter, lane: Lane, quantize: str | None) -> dict[str, Any]:
    """What a language model is asked through."""
    return {"writer": Continuer(exported, lane, leaving, most_rows(exported, quantize))}


def classifier_parts(exported: ExportedClassifier, lane: Lane, quantize: str | None) -> dict[str, Any]:
    """What a classifier is asked through."""
    return {"classifier": Labeller(exported, lane, most_rows(exported, quantize))}


Parts: TypeAlias = Callable[[Any, Lane, str | None], dict[str, Any]]
PARTS: dict[str, Parts] = {"translator": translator_parts, "gpt": gpt_parts, "classifier": classifier_parts}
"""By the kind of model, the fields of Served that its backends are."""


def wishes(options: TranslateOptions, generation: GenerationConfig) -> dict[str, Any]:
    """What a search is asked for: a beam grows with the number of results, and a model without one gets it."""
    if options.results == 1:
        return {"nbest": 1}
    return {"nbest": options.results, "beam_size": max(options.results, generation.beam_size)}
