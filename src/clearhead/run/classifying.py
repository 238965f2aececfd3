"""A trained classifier in, one that takes texts and gives their labels out, in torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.data.cutting import long_texts
from clearhead.engines.classifying import BATCH_TOKENS as BATCH_TOKENS
from clearhead.engines.classifying import Classified as Classified
from clearhead.engines.classifying import TextClassifier
from clearhead.models.classifier import Classifier
from clearhead.run.devices import pick_device
from clearhead.run.reducing import Reducible
from clearhead.text.tokenizer import TokenizerPair

if TYPE_CHECKING:
    from clearhead.export.verify import Parity
    from clearhead.run.inspecting import Inspection


class LoadedClassifier(Reducible, TextClassifier):
    """A trained classifier, ready for use in torch."""

    def __init__(self, model: Classifier, tokenizers: TokenizerPair, device: str = "cpu") -> None:
        config = model.config
        super().__init__(tokenizers, config.labels, long_texts(config.long_texts, config.max_len, config.head))
        self.device = pick_device(device)
        self.model = model.to(self.device).eval()

    @torch.inference_mode()
    def logits(self, ids: NDArray[np.int64], real: NDArray[np.bool_] | None) -> NDArray[np.float32]:
        mask = None if real is None else torch.from_numpy(real).to(self.device)
        logits = self.model(torch.from_numpy(ids).to(self.device), mask)
        found: NDArray[np.float32] = logits.float().cpu().numpy()
        return found

    def export(self, to: str, out: str | Path, **options: Any) -> Parity:
        """Write it for another engine, `onnx`; options are those of `run.exporting.export`."""
        from clearhead.run.exporting import export_loaded

        return export_loaded(self, to, Path(out), **options)

    def inspect(self, text: str, target: str | None = None, *, ablate: Sequence[str] = ()) -> Inspection:
        """Look at every head while a text is read; `ablate` names heads to switch off, `target` a label to expect."""
        from clearhead.run.inspecting_readers import inspect_classifier

        return inspect_classifier(self, text, target, ablate=ablate)
