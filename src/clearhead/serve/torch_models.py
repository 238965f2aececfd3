"""A model loaded with torch in, backends out: what it is asked through depends on its kind, and has a line in PARTS.

All torch models share one lane: they take turns, because a head that is switched off while somebody looks is off for
everyone, and because two that compute at once on the same cores only get in each other's way.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from clearhead.models.translator import Translator
from clearhead.run.translating import BATCH_LOGITS, BATCH_TOKENS, LoadedTranslator
from clearhead.serve.backends import Lane, Looked, Translated, TranslateOptions, Watch
from clearhead.text.specials import EOS_ID

LANE = Lane("torch")


class Placed(NamedTuple):
    """A model's state that knows which row of the batch each of its rows comes from."""

    state: Any
    place: Tensor

    def select(self, rows: Tensor) -> Placed:
        """These rows, in this order."""
        return Placed(self.state.select(rows), self.place[rows])


class Leaving:
    """A model whose rows end at the next step when nobody waits for them any more; to a search it is the model."""

    def __init__(self, model: Any, watch: Watch) -> None:
        self.config = model.config
        self._model = model
        self._watch = watch

    def start(self, ids: Tensor, *rest: Any) -> Placed:
        """What generation carries from step to step."""
        return Placed(self._model.start(ids, *rest), torch.arange(len(ids), device=ids.device))

    def step(self, ids: Tensor, state: Placed) -> tuple[Tensor, Placed]:
        """The logits of the next tokens; for rows that are unwanted, only the end is possible."""
        logits, after = self._model.step(ids, state.state)
        unwanted = self._watch.unwanted()
        if unwanted:
            ends = torch.isin(state.place, torch.tensor(unwanted, device=state.place.device))
            logits = logits.masked_fill(ends[:, None], -torch.inf)
            logits[ends, EOS_ID] = 0.0
        return logits, Placed(after, state.place)


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
        return len(self._loaded.tokenizers.source.encode(text)) + 1

    def translate_batch(self, texts: Sequence[str], options: TranslateOptions, watch: Watch) -> list[list[Translated]]:
        """The translations of each text, best first."""
        loaded = copy.copy(self._loaded)
        # What a search asks of a model is `start`, `step` and `config`.
        loaded.model = cast(Translator, Leaving(loaded.model, watch))
        sources = loaded.tokenizers.source.encode_batch(texts)
        found = loaded.search(sources, loaded.configured(**self._wishes(options)))
        decode = loaded.tokenizers.target.decode
        return [[Translated(" ".join(decode(one.ids).splitlines()), one.score) for one in best] for best in found]

    def _wishes(self, options: TranslateOptions) -> dict[str, Any]:
        if options.results == 1:
            return {"nbest": 1}
        return {"nbest": options.results, "beam_size": max(options.results, self._loaded.generation.beam_size)}


class TorchInspector:
    """A loaded model that people look into."""

    lane = LANE
    most_tokens = BATCH_TOKENS
    most_rows = 1

    def __init__(self, loaded: LoadedTranslator) -> None:
        self._loaded = loaded

    def count(self, text: str) -> int:
        """The tokens of a text, the end included."""
        return len(self._loaded.tokenizers.source.encode(text)) + 1

    def look(self, text: str, target: str | None, ablate: Sequence[str]) -> Looked:
        """What every head looked at while a text was translated, or led to a target."""
        found = self._loaded.inspect(text, target, ablate=ablate)
        return Looked(found.view, found.translation, found.loss)


def translator_parts(loaded: LoadedTranslator) -> dict[str, Any]:
    """What a translator is asked through."""
    return {"translator": TorchTranslator(loaded), "inspector": TorchInspector(loaded)}


PARTS: dict[str, Callable[[Any], dict[str, Any]]] = {"translator": translator_parts}
"""By the kind of model, the fields of Served that its backends are."""
