"""The newest tokens of texts in, scores of what comes next out, by ONNX Runtime and numpy.

The graph takes any number of tokens of each row after any past, which is empty at first, and gives the past grown by
them. All rows have read as much.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clearhead.engines.directory import Exported
from clearhead.engines.graph import Graph, grown
from clearhead.engines.ranking import Floats, Ids
from clearhead.engines.writing import first_seen


@dataclass(frozen=True)
class OnnxPast:
    """What was read, and the keys and values of it."""

    seen: Ids
    past: dict[str, Floats]

    def select(self, rows: Ids) -> OnnxPast:
        """These rows, in this order."""
        return OnnxPast(self.seen[rows], {name: array[rows] for name, array in self.past.items()})


class OnnxWriter:
    """A language model as one ONNX graph."""

    name = "onnx"

    def __init__(self, exported: Exported, threads: int, device: str = "cpu") -> None:
        self._graph = Graph(exported.path / "model.onnx", device, threads)
        self.max_len = exported.notes.max_len

    def start(self, seen: Ids) -> OnnxPast:
        """Read texts of one length, which may be 0."""
        past = self._graph.empty_past(len(seen))
        return OnnxPast(seen, grown(self._graph.run({"ids": seen, **past})) if seen.shape[1] else past)

    def step(self, ids: Ids, state: OnnxPast) -> tuple[Floats, OnnxPast]:
        """Feed the newest token of each row; the logits of the next one come back."""
        seen, past, fresh = np.concatenate((state.seen, ids[:, None]), 1), state.past, ids[:, None]
        if seen.shape[1] > self.max_len:
            seen = fresh = seen[:, first_seen(seen.shape[1], self.max_len) :]
            past = self._graph.empty_past(len(ids))
        answer = self._graph.run({"ids": np.ascontiguousarray(fresh), **past})
        return answer["logits"], OnnxPast(seen, grown(answer))

    def read(self, ids: Ids) -> Floats:
        """The scores after each token of texts of one length, (rows, time, vocabulary): the graph gives one a step."""
        state, found = self.start(ids[:, :0]), []
        for token in ids.T:
            logits, state = self.step(token, state)
            found.append(logits)
        return np.stack(found, 1)
