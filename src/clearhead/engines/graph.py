"""An ONNX file in, a function from named arrays to named arrays out, by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.engines.extras import needed
from clearhead.engines.ranking import Floats
from clearhead.errors import StorageError, UnavailableError


class Graph:
    """A graph as a function from named arrays to named arrays."""

    def __init__(self, path: Path, device: str = "cpu", threads: int = 1) -> None:
        needed("onnxruntime")
        if device not in ("auto", "cpu"):
            raise UnavailableError(f"device '{device}' cannot be used: the onnx engine computes on the CPU")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime has a family of its own, which derives from Exception.
            raise StorageError(f"ONNX Runtime cannot read {path}: {str(error).partition(chr(10))[0]}") from None
        self.inputs: dict[str, list[Any]] = {one.name: one.shape for one in self._session.get_inputs()}
        """The shape of each; axes that may have any length have names."""
        self._outputs = [one.name for one in self._session.get_outputs()]

    def run(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """What comes out of what goes in."""
        return dict(zip(self._outputs, self._session.run(self._outputs, arrays), strict=True))

    def empty_past(self, rows: int) -> dict[str, Floats]:
        """What a graph that has read nothing yet knows of the past of each row."""
        return {
            name: np.empty((rows, shape[1], 0, shape[3]), np.float32)
            for name, shape in self.inputs.items()
            if name.startswith("past.")
        }


def grown(answer: dict[str, Any]) -> dict[str, Floats]:
    """What came out as the present, to go in as the past."""
    return {name.replace("present", "past"): array for name, array in answer.items() if name.startswith("present.")}
