"""Source ids in, hypotheses out, by ONNX Runtime and numpy: an encoder that reads, a decoder that takes one step.

The encoder gives what the decoder looks at, as keys and values of each layer; the decoder takes the newest token of
each row, those keys and values, and its own past, which is empty at first, and gives the past grown by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from clearhead.engines.directory import Exported
from clearhead.engines.graph import Graph, grown
from clearhead.engines.hypotheses import Unwanted, ended, nobody
from clearhead.engines.ranking import Flags, Floats, Ids
from clearhead.engines.search import generate
from clearhead.generate.hypothesis import Hypothesis
from clearhead.generate.repeats import count_repeats, guard_span
from clearhead.generate.settings import GenerationConfig
from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID
from clearhead.text.streaming import StopStrings
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
        # Small products gain nothing from a second thread; texts are shared out among threads instead.
        self._encoder = Graph(exported.path / "encoder.onnx", device)
        self._decoder = Graph(exported.path / "decoder.onnx", device)
        self.threads = threads
        self.room = exported.notes.max_len - 1
        self._target = tokenizers.target
        self._vocab = tokenizers.target.vocab_size
        self._span = guard_span(tokenizers.target.kind)

    def check(self, config: GenerationConfig) -> None:
        """Everything is possible."""

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: GenerationConfig,
        row_keys: Sequence[int],
        unwanted: Unwanted = nobody,
        *,
        scored: bool = True,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, best first, always with scores; batches are shared out among threads.

        A source that is unwanted ends at the next step.
        """
        order = sorted(range(len(sources)), key=lambda place: (len(sources[place]), place))
        most_rows = max(1, BATCH_LOGITS // (self._vocab * config.hypotheses))
        lengths = [len(sources[place]) for place in order]
        # The longest first, so that what is left at the end is short.
        batches = [[order[place] for place in batch] for batch in _batches(lengths, most_rows)][::-1]

        def one(batch: list[int]) -> list[list[Hypothesis]]:
            own = [sources[place] for place in batch]
            return self._batch(own, config, [row_keys[place] for place in batch], lambda: _rows(batch, unwanted()))

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
        self,
        sources: Sequence[Sequence[int]],
        config: GenerationConfig,
        row_keys: Sequence[int],
        unwanted: Callable[[], list[int]],
    ) -> list[list[Hypothesis]]:
        def step(ids: Ids, state: OnnxState) -> tuple[Floats, OnnxState]:
            logits, after = self.step(ids, state)
            gone = unwanted()
            return ended(logits, np.isin(state.place, gone)) if gone else logits, after

        return generate(
            step,
            self.start(sources),
            config,
            max_lens=config.max_lens([len(ids) for ids in sources], self.room),
            repeats_allowed=[count_repeats(ids) for ids in sources],
            guard_span=self._span,
            row_keys=row_keys,
            stop=StopStrings(self._target, config.stop) if config.stop else None,
        )

    def start(self, sources: Sequence[Sequence[int]]) -> OnnxState:
        """Read sources (without control tokens); what comes back is carried from step to step."""
        width = max(len(ids) for ids in sources) + 1
        ids = np.full((len(sources), width), PAD_ID, np.int64)
        for row, source in enumerate(sources):
            ids[row, : len(source) + 1] = [*source, EOS_ID]
        real = np.arange(width) <= np.array([len(source) for source in sources])[:, None]
        memory = self._encoder.run({"source": ids, "real": real})
        return OnnxState(self._decoder.empty_past(len(sources)), memory, real, np.arange(len(sources)), memory, real)

    def step(self, ids: Ids, state: OnnxState) -> tuple[Floats, OnnxState]:
        """Feed the newest token of each row; the logits of the next one come back."""
        answer = self._decoder.run({"ids": ids, "real": state.seen_real, **state.past, **state.seen})
        past = grown(answer)
        return answer["logits"], OnnxState(past, state.memory, state.real, state.place, state.seen, state.seen_real)

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Floats:
        """The scores of the token after <s> and after each target token."""
        state, found = self.start([source]), []
        for token in (BOS_ID, *target):
            logits, state = self.step(np.array([token]), state)
            found.append(logits[0])
        return np.stack(found)


def _rows(batch: Sequence[int], places: Collection[int]) -> list[int]:
    """The rows of a batch that hold what is at some places.

    >>> _rows([7, 3, 5], {5, 7, 8})
    [0, 2]
    """
    return [row for row, place in enumerate(batch) if place in places]


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
