"""A trained language model in, one that takes beginnings and gives what comes after out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch

from clearhead.config import build
from clearhead.errors import ConfigError, DataError
from clearhead.generate.settings import GenerationConfig
from clearhead.generate.step import Choice, Hypothesis
from clearhead.generate.strategies import generate, searching
from clearhead.models.gpt import Gpt
from clearhead.run.devices import pick_device
from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from clearhead.text.streaming import StopStrings, TextStream, cut
from clearhead.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from clearhead.run.inspecting import Inspection
    from clearhead.run.likelihood import Likelihood

CACHED_TOKENS = 16_384
"""Tokens, of all texts that are written side by side, whose keys and values are in memory at once."""
FINE_GRAINED_SPAN = 24
"""In characters and bytes a repetition is a loop only from this many tokens on: 000000 is a number."""


@dataclass(frozen=True)
class Continuation:
    """What came after a prompt, once."""

    text: str
    log_prob: float
    """The log-probability of all its tokens together."""
    tokens: int
    is_stopped: bool
    """Whether a stop string ended it, and not the longest length."""


class LoadedGpt:
    """A trained language model, ready for use."""

    def __init__(self, model: Gpt, tokenizer: Tokenizer, generation: GenerationConfig, device: str = "cpu") -> None:
        self.device = pick_device(device)
        self.model = model.to(self.device).eval()
        self.tokenizer = tokenizer
        self.generation = generation
        self.path: Path | None = None
        """Where it was loaded from."""

    @overload
    def generate(self, prompts: str = "", **options: Any) -> str: ...
    @overload
    def generate(self, prompts: Iterable[str], **options: Any) -> list[str]: ...
    def generate(self, prompts: str | Iterable[str] = "", **options: Any) -> str | list[str]:
        """What comes after one prompt or after each of many; options are `length` and those of GenerationConfig."""
        if isinstance(prompts, str):
            return self.generate([prompts], **options)[0]
        return [found[0].text for found in self.continuations(list(prompts), self.configured(**options))]

    def samples(self, prompt: str, count: int, **options: Any) -> list[str]:
        """Several different texts that may come after one prompt, likeliest first."""
        found = self.continuations([prompt], self.configured(**options, nbest=count))
        return [one.text for one in found[0]]

    def configured(self, **options: Any) -> GenerationConfig:
        """The model's own settings with some changed; `length` is the most tokens that are added."""
        if "length" in options:
            options["max_len"] = options.pop("length")
        return build(GenerationConfig, {**self.generation.model_dump(), **options}, "generation")

    def continuations(self, prompts: Sequence[str], config: GenerationConfig) -> list[list[Continuation]]:
        """The `nbest` continuations of each prompt; a prompt's do not depend on the others, but on its place."""
        found = self.search([self.encode(prompt) for prompt in prompts], config)
        return [[self._continuation(one, config) for one in best] for best in found]

    def stream(self, prompt: str = "", **options: Any) -> Iterator[str]:
        """The same text as `generate` gives, in pieces as soon as they are sure: whole characters, and no stop."""
        config = self.configured(**options)
        if config.nbest > 1 or config.strategy == "beam":
            raise ConfigError("only one text can be followed as it is written: use greedy or sample, and nbest = 1")
        return self._stream(self.encode(prompt), config)

    @torch.inference_mode()
    def _stream(self, prompt: Sequence[int], config: GenerationConfig) -> Iterator[str]:
        text = TextStream(self.tokenizer, config.stop)
        for choice in searching(self.model.step, self._start([prompt]), 1, config, **self._limits([prompt], config)):
            piece = text.add(choice.tokens.tolist())
            if piece:
                yield piece
        rest = text.end()
        if rest:
            yield rest

    @torch.inference_mode()
    def search(
        self,
        prompts: Sequence[Sequence[int]],
        config: GenerationConfig,
        row_keys: Sequence[int] | None = None,
        watch: Callable[[Choice], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses for prompts as ids; those of one length are written side by side."""
        # Of one length, because then all stand at the same place: no padding, so no mask, with any position scheme.
        keys = range(len(prompts)) if row_keys is None else row_keys
        most = max(1, CACHED_TOKENS // (self.model.config.max_len * config.hypotheses))
        found: list[list[Hypothesis]] = [[] for _ in prompts]
        order = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
        for _, group in groupby(order, key=lambda row: len(prompts[row])):
            alike = list(group)
            for rows in (alike[first : first + most] for first in range(0, len(alike), most)):
                some = [prompts[row] for row in rows]
                limits = {**self._limits(some, config), "row_keys": [keys[row] for row in rows]}
                results = generate(self.model.step, self._start(some), len(some), config, watch=watch, **limits)
                for row, best in zip(rows, results, strict=True):
                    found[row] = best
        return found

    def encode(self, prompt: str) -> list[int]:
        """A prompt as ids; an empty one is a line end, so that a new line begins."""
        ids = self.tokenizer.encode(prompt or "\n")
        if self.tokenizer.kind == "char" and UNK_ID in ids:
            if not prompt:
                return [BOS_ID]
            place = ids.index(UNK_ID)
            raise DataError(
                f"the prompt has a character that this model has never seen: {prompt[place]!r} (character {place + 1})"
            )
        return ids

    def _start(self, prompts: Sequence[Sequence[int]]) -> Any:
        return self.model.start(torch.tensor([list(ids[:-1]) for ids in prompts], dtype=torch.long, device=self.device))

    def _limits(self, prompts: Sequence[Sequence[int]], config: GenerationConfig) -> dict[str, Any]:
        """What search has to know beyond the settings; the last token of each prompt is yet to be fed."""
        return {
            "bos_id": [ids[-1] for ids in prompts],
            "eos_id": EOS_ID,
            "max_lens": [config.max_len or self.model.config.max_len] * len(prompts),
            # A text has no end that could be learnt: it goes on for as long as is asked for.
            "forbidden_ids": (BOS_ID, EOS_ID, PAD_ID, UNK_ID),
            "guard_span": FINE_GRAINED_SPAN if self.tokenizer.kind in ("char", "byte") else 1,
            "stop": StopStrings(self.tokenizer, config.stop) if config.stop else None,
            "device": self.device,
        }

    def _continuation(self, hypothesis: Hypothesis, config: GenerationConfig) -> Continuation:
        text = self.tokenizer.decode(hypothesis.ids)
        before = cut(text, config.stop)
        return Continuation(
            text if before is None else before, hypothesis.log_prob, len(hypothesis.ids), before is not None
        )

    def score(self, path: str | Path) -> Likelihood:
        """How well the model foretells a text file: its perplexity per token, per character and per byte."""
        from clearhead.run.likelihood import score_text

        return score_text(self, Path(path))

    def inspect(self, text: str, target: str | None = None, *, ablate: Sequence[str] = ()) -> Inspection:
        """Look at every head while the model reads a text, and a target after it; `ablate` switches heads off."""
        from clearhead.run.inspecting_gpt import inspect_gpt

        return inspect_gpt(self, text, target, ablate=ablate)
