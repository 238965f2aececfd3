"""Source ids in, hypotheses out, by ONNX Runtime and numpy: an encoder that reads, a decoder that takes one step.

The encoder gives what the decoder looks at, as keys and values of each layer; the decoder takes the newest token of
each row, those keys and values, and its own past, which is empty at first, and gives the past grown by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from clearhead.engines.directory import Exported
from clearhead.engines.extras import needed
from clearhead.engines.ranking import Flags, Floats, Ids
from clearhead.engines.search import generate
from clearhead.errors import StorageError, UnavailableError
from clearhead.generate.hypothesis import Hypothesis
from clearhead.generate.repeats import count_repeats, guard_span
from clearhead.generate.settings import GenerationConfig
from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID
from clearhead.text.tokenizer import TokenizerPair

BATCH_TOKENS = 1024
"""Source tokens, padding included, that are translated side by side."""
BATCH_LOGITS = 2**20
"""Scores of one step, all hypotheses together, so that they stay in a cache."""

Named: TypeAlias = dict[str, Floats]


@dataclass(frozen=True)
class OnnxState:
    """What the decoder carries from step to step."""

    past: Named
    memory: Named
    """What each source gives to look at; several rows may share one."""
    real: Flags
    place: Ids
    """Which source each row looks at."""
    seen: Named
    """The memory of each row."""
    seen_real: Flags

    def select(self, rows: Ids) -> OnnxState:
        """These rows, in this order; what they look at is laid out anew only if it changes."""
        place = self.place[rows]
        past = {name: array[rows] for name, array in self.past.items()}
        if np.array_equal(place, self.place):
            return OnnxState(past, self.memory, self.real, place, self.seen, self.seen_real)
        seen = {name: array[place] for name, array in self.memory.items()}
        return OnnxState(past, self.memory, self.real, place, seen, self.real[place])


class OnnxEngine:
    """A translator as two ONNX graphs."""

    name = "onnx"

    def __init__(self, exported: Exported, tokenizers: TokenizerPair, threads: int, device: str = "cpu") -> None:
        needed("onnxruntime")
        if device not in ("auto", "cpu"):
            raise UnavailableError(f"device '{device}' cannot be used: the onnx engine computes on the CPU")
        self._encoder = Graph(exported.path / "encoder.onnx")
        self._decoder = Graph(exported.path / "decoder.onnx")
        self.threads = threads
        self.room = exported.notes.max_len - 1
        self._vocab = tokenizers.target.vocab_size
        self._span = guard_span(tokenizers.target.kind)

    def check(self, config: GenerationConfig) -> None:
        """Everything is possible."""

    def search(
        self, sources: Sequence[Sequence[int]], config: GenerationConfig, row_keys: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, best first; batches are shared out among threads."""
        order = sorted(range(len(sources)), key=lambda place: (len(sources[place]), place))
        most_rows = max(1, BATCH_LOGITS // (self._vocab * config.hypotheses))
        lengths = [len(sources[place]) for place in order]
        # The longest first, so that what is left at the end is short.
        batches = [[order[place] for place in batch] for batch in _batches(lengths, most_rows)][::-1]

        def one(batch: list[int]) -> list[list[Hypothesis]]:
            return self._batch([sources[place] for place in batch], config, [row_keys[place] for place in batch])

        found: list[list[Hypothesis]] = [[] for _ in sources]
        if len(batches) < 2 or self.threads < 2:
            answers = [one(batch) for batch in batches]
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                answers = list(pool.map(one, batches))
        for batch, best in zip(batches, answers, strict=True):
            for place, hypotheses in zip(batch, best, strict=True):
                found[place] = hypotheses
        return found

    def _batch(
        self, sources: Sequence[Sequence[int]], config: GenerationConfig, row_keys: Sequence[int]
    ) -> list[list[Hypothesis]]:
        return generate(
            self.step,
            self.start(sources),
            config,
            max_lens=config.max_lens([len(ids) for ids in sources], self.room),
            repeats_allowed=[count_repeats(ids) for ids in sources],
            guard_span=self._span,
            row_keys=row_keys,
        )

    def start(self, sources: Sequence[Sequence[int]]) -> OnnxState:
        """Read sources (without control tokens); what comes back is carried from step to step."""
        width = max(len(ids) for ids in sources) + 1
        ids = np.full((len(sources), width), PAD_ID, np.int64)
        for row, source in enumerate(sources):
            ids[row, : len(source) + 1] = [*source, EOS_ID]
        real = np.arange(width) <= np.array([len(source) for source in sources])[:, None]
        memory = self._encoder.run({"source": ids, "real": real})
        past = {
            name: np.empty((len(sources), shape[1], 0, shape[3]), np.float32)
            for name, shape in self._decoder.inputs.items()
            if name.startswith("past.")
        }
        return OnnxState(past, memory, real, np.arange(len(sources)), memory, real)

    def step(self, ids: Ids, state: OnnxState) -> tuple[Floats, OnnxState]:
        """Feed the newest token of each row; the logits of the next one come back."""
        answer = self._decoder.run({"ids": ids, "real": state.seen_real, **state.past, **state.seen})
        logits = answer.pop("logits")
        past = {name.replace("present", "past"): array for name, array in answer.items()}
        return logits, OnnxState(past, state.memory, state.real, state.place, state.seen, state.seen_real)

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Floats:
        """The scores of the token after <s> and after each target token."""
        state, found = self.start([source]), []
        for token in (BOS_ID, *target):
            logits, state = self.step(np.array([token]), state)
            found.append(logits[0])
        return np.stack(found)


class Graph:
    """A graph as a function from named arrays to named arrays."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        # Small products gain nothing from a second thread; texts are shared out among threads instead.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
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


def _batches(lengths: Sequence[int], most_rows: int) -> Iterator[list[int]]:
    """Places of rows that come by length, in batches."""
    batch: list[int] = []
    for place, length in enumerate(lengths):
        if batch and (len(batch) >= most_rows or (len(batch) + 1) * (length + 1) > BATCH_TOKENS):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch
