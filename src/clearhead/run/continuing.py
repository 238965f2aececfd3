"""A trained language model in, one that takes beginnings and gives what comes after out, in torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from clearhead.engines.writing import CACHED_TOKENS as CACHED_TOKENS
from clearhead.engines.writing import Continuation as Continuation
from clearhead.engines.writing import TextWriter
from clearhead.generate.settings import GenerationConfig
from clearhead.generate.step import Choice, Hypothesis
from clearhead.generate.strategies import generate, searching
from clearhead.models.gpt import Gpt
from clearhead.nn.masks import real_tokens
from clearhead.run.devices import pick_device
from clearhead.text.specials import EOS_ID, PAD_ID
from clearhead.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from clearhead.export.verify import Parity
    from clearhead.run.inspecting import Inspection
    from clearhead.run.likelihood import Likelihood


class LoadedGpt(TextWriter):
    """A trained language model, ready for use in torch."""

    def __init__(self, model: Gpt, tokenizer: Tokenizer, generation: GenerationConfig, device: str = "cpu") -> None:
        super().__init__(tokenizer, generation, model.config.max_len)
        self.device = pick_device(device)
        self.model = model.to(self.device).eval()

    @torch.inference_mode()
    def search_alike(
        self,
        prompts: Sequence[Sequence[int]],
        config: GenerationConfig,
        row_keys: Sequence[int],
        watch: Callable[[Choice], None] | None = None,
    ) -> list[list[Hypothesis]]:
        limits = {**self.limits(prompts, config), "row_keys": row_keys}
        return generate(self.model.step, self._start(prompts), len(prompts), config, watch=watch, **limits)

    @torch.inference_mode()
    def tokens(self, prompt: Sequence[int], config: GenerationConfig) -> Iterator[list[int]]:
        limits = self.limits([prompt], config)
        for choice in searching(self.model.step, self._start([prompt]), 1, config, **limits):
            yield choice.tokens.tolist()

    @torch.inference_mode()
    def logits(self, prompt: Sequence[int], said: Sequence[int]) -> NDArray[np.float32]:
        state, found = self._start([prompt]), []
        for token in (prompt[-1], *said):
            logits, state = self.model.step(torch.tensor([token], device=self.device), state)
            found.append(logits[0].float())
        rows: NDArray[np.float32] = torch.stack(found).cpu().numpy()
        return rows

    @torch.inference_mode()
    def surprise(self, inputs: NDArray[np.int64], answers: NDArray[np.int64]) -> NDArray[np.float64]:
        given, wanted = (torch.from_numpy(ids).to(self.device) for ids in (inputs, answers))
        real = real_tokens(wanted, PAD_ID)
        logits = self.model(given, None if bool(real.all()) else real).float()
        nll = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD_ID, reduction="none")
        found: NDArray[np.float64] = nll.view_as(wanted).double().sum(1).cpu().numpy()
        return found

    def limits(self, prompts: Sequence[Sequence[int]], config: GenerationConfig) -> dict[str, Any]:
        """The same, and the last token of each prompt, which is yet to be fed."""
        firsts = {"bos_id": [ids[-1] for ids in prompts], "eos_id": EOS_ID, "device": self.device}
        return {**super().limits(prompts, config), **firsts}

    def _start(self, prompts: Sequence[Sequence[int]]) -> Any:
        return self.model.start(torch.tensor([list(ids[:-1]) for ids in prompts], dtype=torch.long, device=self.device))

    def export(self, to: str, out: str | Path, **options: Any) -> Parity:
        """Write it for another engine, `ctranslate2` or `onnx`; options are those of `run.exporting.export`."""
        from clearhead.run.exporting import export_loaded

        return export_loaded(self, to, Path(out), **options)

    def score(self, path: str | Path) -> Likelihood:
        """How well the model foretells a text file: its perplexity per token, per character and per byte."""
        from clearhead.run.likelihood import score_text

        return score_text(self, Path(path))

    def inspect(self, text: str, target: str | None = None, *, ablate: Sequence[str] = ()) -> Inspection:
        """Look at every head while the model reads a text, and a target after it; `ablate` switches heads off."""
        from clearhead.run.inspecting_gpt import inspect_gpt

        return inspect_gpt(self, text, target, ablate=ablate)
