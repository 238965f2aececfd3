"""A trained translator in, one that takes strings and gives strings out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from clearhead.engines.texts import TextTranslator, Translation
from clearhead.errors import UnavailableError
from clearhead.generate.repeats import count_repeats, guard_span
from clearhead.generate.settings import GenerationConfig
from clearhead.generate.step import Choice, Hypothesis
from clearhead.generate.strategies import generate
from clearhead.models.translator import Translator
from clearhead.nn.masks import real_tokens
from clearhead.run.devices import pick_device
from clearhead.run.reducing import Reducible
from clearhead.run.workers import Crew, can_fork
from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from clearhead.text.streaming import StopStrings
from clearhead.text.tokenizer import TokenizerPair
from clearhead.text.turns import next_turn

if TYPE_CHECKING:
    from clearhead.export.verify import Parity
    from clearhead.run.inspecting import Inspection

BATCH_TOKENS = 4096
"""Source tokens, padding included, that are translated side by side."""
BATCH_LOGITS = 6 * 2**20
"""Scores of one step, all hypotheses together: larger tensors go back to the system and are fetched anew each step."""
WINDOW = 1024
"""Lines read ahead, so that those of a length can go together; memory is bounded by this."""
ENOUGH_FOR_WORKERS = 256
"""Fewer texts than this are left to one process; a guess, not yet measured on an idle machine."""
SHARES = 4
"""Batches for each worker in a window, so that all finish at about the same time ..."""
SMALLEST_SHARE = 1024
"""... but not smaller than so many tokens."""

Job: TypeAlias = tuple[Sequence[Sequence[int]], Sequence[int]]
"""The source ids of one batch, and the number of each text."""
Outcome: TypeAlias = tuple[str, float, float, bool]
"""The fields of a Translation, as they cross from a worker."""


class LoadedTranslator(Reducible, TextTranslator):
    """A trained translator, ready for use in torch."""

    def __init__(
        self, model: Translator, tokenizers: TokenizerPair, generation: GenerationConfig, device: str = "cpu"
    ) -> None:
        super().__init__(tokenizers, generation, model.config.max_len)
        self.device = pick_device(device)
        self.model = model.to(self.device).eval()

    def inspect(
        self, text: str, target: str | None = None, *, ablate: Sequence[str] = (), **options: Any
    ) -> Inspection:
        """Look at every head while a text is translated, or is led to a target; `ablate` names heads to switch off."""
        from clearhead.run.inspecting import inspect

        return inspect(self, text, target, ablate=ablate, **options)

    def export(self, to: str, out: str | Path, **options: Any) -> Parity:
        """Write it for another engine, `ctranslate2` or `onnx`; options are those of `run.exporting.export`."""
        from clearhead.run.exporting import export_loaded

        return export_loaded(self, to, Path(out), **options)

    def stream(
        self,
        texts: Iterable[str | None],
        config: GenerationConfig,
        workers: int | None = None,
        *,
        scored: bool = True,
    ) -> Iterator[list[Translation]]:
        """The n best translations of each text, in order, in constant memory, with scores; an empty text stays empty.

        Texts are read ahead, as far as a None, which says that no more will come for a while. `workers`
        one-thread processes share the work. If not given there are as many as torch may use threads, where that pays:
        on a CPU, from some hundred texts on.
        """
        remaining = iter(texts)
        first, count = 0, 0
        with ExitStack() as stack:
            crew: Crew | None = None
            while window := next_turn(remaining, WINDOW * max(count, 1)):
                if crew is None and (count := self._workers(len(window), workers)) > 1:
                    crew = stack.enter_context(Crew(lambda job: self._job(job, config), count))
                yield from self._window(window, first, config, crew)
                first += len(window)

    def _workers(self, num_texts: int, wished: int | None) -> int:
        if wished is not None:
            if wished > 1 and self.device.type != "cpu":
                raise UnavailableError(f"several workers share a CPU, and this model is on {self.device}: use 1")
            return wished
        is_safe = can_fork() and threading.current_thread() is threading.main_thread()
        pays = self.device.type == "cpu" and num_texts >= ENOUGH_FOR_WORKERS
        return torch.get_num_threads() if is_safe and pays else 1

    def _window(
        self, texts: Sequence[str], first: int, config: GenerationConfig, crew: Crew | None
    ) -> list[list[Translation]]:
        results = [[Translation("", 0.0, 0.0, True)] for _ in texts]
        ids = self.encode(texts, first)
        filled = sorted((row for row in range(len(texts)) if texts[row].strip()), key=lambda row: (len(ids[row]), row))
        lengths = [len(row) for row in ids]
        most_rows = max(1, BATCH_LOGITS // (self.model.config.target_vocab_size * config.hypotheses))
        most_tokens = BATCH_TOKENS
        if crew is not None:
            share = sum(lengths[row] + 1 for row in filled) // (SHARES * len(crew)) + 1
            most_tokens = min(most_tokens, max(share, SMALLEST_SHARE))
        batches = list(_batches(filled, lengths, most_tokens, most_rows))
        # The longest first, so that what is left at the end is short.
        jobs = [([ids[row] for row in rows], [first + row for row in rows]) for rows in reversed(batches)]
        found = enumerate(self._job(job, config) for job in jobs) if crew is None else crew.do(jobs)
        for number, translations in found:
            for row, best in zip(batches[-1 - number], translations, strict=True):
                results[row] = [Translation(*one) for one in best]
        return results

    def _job(self, job: Job, config: GenerationConfig) -> list[list[Outcome]]:
        """What `search` finds for one batch, as text."""
        sources, row_keys = job
        found = self.as_texts(self.search(sources, config, row_keys), config)
        return [[astuple(one) for one in best] for best in found]

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: GenerationConfig,
        row_keys: Sequence[int] | None = None,
        watch: Callable[[Choice], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses for source ids (without control tokens), all in one batch; `watch` sees each step."""
        source = _padded([[*ids, EOS_ID] for ids in sources]).to(self.device)
        is_full = len({len(ids) for ids in sources}) == 1
        with torch.inference_mode():
            state = self.model.start(source, None if is_full else real_tokens(source, PAD_ID))
            return generate(
                self.model.step,
                state,
                len(sources),
                config,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                max_lens=config.max_lens([len(ids) for ids in sources], room=self.model.config.max_len - 1),
                forbidden_ids=(BOS_ID, PAD_ID, UNK_ID),
                row_keys=row_keys,
                repeats_allowed=[count_repeats(ids) for ids in sources],
                guard_span=guard_span(self.tokenizers.target.kind),
                stop=StopStrings(self.tokenizers.target, config.stop) if config.stop else None,
                device=self.device,
                watch=watch,
            )


def _batches(rows: Sequence[int], lengths: Sequence[int], most_tokens: int, most_rows: int) -> Iterator[list[int]]:
    batch: list[int] = []
    for row in rows:
        is_full = len(batch) >= most_rows or (len(batch) + 1) * (lengths[row] + 1) > most_tokens
        if batch and is_full:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _padded(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    width = max(len(row) for row in rows)
    return torch.tensor([[*row, *[PAD_ID] * (width - len(row))] for row in rows], dtype=torch.long)
