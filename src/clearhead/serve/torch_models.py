"""A model loaded with torch in, backends out: what it is asked through depends on its kind, and has a line in PARTS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from clearhead.run.classifying import LoadedClassifier
from clearhead.run.continuing import LoadedGpt
from clearhead.run.filling import LoadedBert
from clearhead.run.inspecting import Inspection
from clearhead.run.translating import BATCH_LOGITS, BATCH_TOKENS, LoadedTranslator
from clearhead.serve.backends import Looked, Translated, TranslateOptions, Watch
from clearhead.serve.continuing import Continuer
from clearhead.serve.exported import wishes
from clearhead.serve.labelling import Labeller
from clearhead.serve.torch_lane import LANE, leaving


class TorchTranslator:
    """A loaded translator, for batches of texts."""

    lane = LANE
    most_tokens = BATCH_TOKENS

    def __init__(self, loaded: LoadedTranslator) -> None:
        self._loaded = loaded
        beams = max(loaded.generation.beam_size, 1)
        self.most_rows = max(1, BATCH_LOGITS // (loaded.model.config.target_vocab_size * beams))
        self.longest = loaded.model.config.max_len

    def count(self, text: str) -> int:
        """The tokens of a text, the end included."""
        return self._loaded.count(text)

    def translate_batch(self, texts: Sequence[str], options: TranslateOptions, watch: Watch) -> list[list[Translated]]:
        """The translations of each text, best first."""
        loaded = leaving(self._loaded, watch)
        sources = loaded.tokenizers.source.encode_batch(texts)
        config = loaded.configured(**wishes(options, loaded.generation))
        found = loaded.as_texts(loaded.search(sources, config), config)
        return [[Translated(one.text, one.score) for one in best] for best in found]


class Inspectable(Protocol):
    """A loaded model that has an inside."""

    model: Any

    def inspect(self, text: str, target: str | None = None, *, ablate: Sequence[str] = ()) -> Inspection:
        """Look at every head while a text is read."""


class TorchInspector:
    """A loaded model that people look into."""

    lane = LANE
    most_tokens = BATCH_TOKENS
    most_rows = 1

    def __init__(self, loaded: Inspectable, encode: Callable[[str], Sequence[int]]) -> None:
        self._loaded = loaded
        self.longest = int(loaded.model.config.max_len)
        self._encode = encode

    def count(self, text: str) -> int:
        """The tokens of a text, the end included."""
        return len(self._encode(text)) + 1

    def look(self, text: str, target: str | None, ablate: Sequence[str]) -> Looked:
        """What every head looked at while a text was read, and another written."""
        found = self._loaded.inspect(text, target, ablate=ablate)
        return Looked(found.view, found.translation, found.loss)


def translator_parts(loaded: LoadedTranslator) -> dict[str, Any]:
    """What a translator is asked through."""
    inspector = TorchInspector(loaded, loaded.tokenizers.source.encode)
    return {"translator": TorchTranslator(loaded), "inspector": inspector}


def gpt_parts(loaded: LoadedGpt) -> dict[str, Any]:
    """What a language model is asked through."""
    inspector = TorchInspector(loaded, loaded.tokenizer.encode)
    return {"writer": Continuer(loaded, LANE, leaving), "inspector": inspector}


def classifier_parts(loaded: LoadedClassifier) -> dict[str, Any]:
    """What a classifier is asked through."""
    inspector = TorchInspector(loaded, loaded.tokenizers.source.encode)
    return {"classifier": Labeller(loaded, LANE), "inspector": inspector}


def bert_parts(loaded: LoadedBert) -> dict[str, Any]:
    """A BERT is only looked into."""
    return {"inspector": TorchInspector(loaded, loaded.tokenizers.source.encode)}


PARTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "translator": translator_parts,
    "gpt": gpt_parts,
    "classifier": classifier_parts,
    "bert": bert_parts,
}
"""By the kind of model, the fields of Served that its backends are."""
