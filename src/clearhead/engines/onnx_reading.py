"""Named arrays in, the scores of all that may be answered out: models that read and answer at once, by ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.engines.directory import Exported
from clearhead.engines.graph import Graph
from clearhead.engines.ranking import Floats


class OnnxReader:
    """A classifier, a BERT or a Vision Transformer as one ONNX graph."""

    name = "onnx"

    def __init__(self, exported: Exported, threads: int, device: str = "cpu") -> None:
        self._graph = Graph(exported.path / "model.onnx", device, threads)

    def answer(self, **given: NDArray[Any]) -> Floats:
        """The scores of a batch; where the graph knows segments and none are given, all is the first."""
        if "segments" in self._graph.inputs:
            given.setdefault("segments", np.zeros_like(given["ids"]))
        logits: Floats = self._graph.run(given)["logits"]
        return logits
