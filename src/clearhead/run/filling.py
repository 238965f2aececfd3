"""A trained BERT in, one that takes texts with gaps and says what may stand in them out, in torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.engines.filling import GAP as GAP
from clearhead.engines.filling import Filled as Filled
from clearhead.engines.filling import Gapped, TextFiller
from clearhead.engines.filling import gapped as gapped
from clearhead.models.bert import Bert
from clearhead.run.devices import pick_device
from clearhead.run.reducing import Reducible
from clearhead.text.tokenizer import TokenizerPair

if TYPE_CHECKING:
    from clearhead.export.verify import Parity
    from clearhead.run.inspecting import Inspection


class LoadedBert(Reducible, TextFiller):
    """A trained BERT, ready for use in torch."""

    def __init__(self, model: Bert, tokenizers: TokenizerPair, device: str = "cpu") -> None:
        super().__init__(tokenizers, model.config.max_len)
        self.device = pick_device(device)
        self.model = model.to(self.device).eval()

    @torch.inference_mode()
    def logits(self, given: Gapped) -> NDArray[np.float32]:
        ids, hidden = (torch.tensor([row], device=self.device) for row in given)
        x = self.model.encode(ids, hidden)
        # One that was imported without a head for gaps can still read a text that has none.
        named = self.model.named(x[hidden]) if given.places else x.new_empty(0, self.model.config.vocab_size)
        found: NDArray[np.float32] = named.float().cpu().numpy()
        return found

    def export(self, to: str, out: str | Path, **options: Any) -> Parity:
        """Write it for another engine, `onnx`; options are those of `run.exporting.export`."""
        from clearhead.run.exporting import export_loaded

        return export_loaded(self, to, Path(out), **options)

    def inspect(self, text: str, target: str | None = None, *, ablate: Sequence[str] = ()) -> Inspection:
        """Look at every head while a text is read, with gaps or without; `ablate` names heads to switch off."""
        from clearhead.run.inspecting_readers import inspect_bert

        return inspect_bert(self, text, target, ablate=ablate)
