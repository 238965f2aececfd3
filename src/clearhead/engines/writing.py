"""Beginnings in, what comes after them out: what every writer of texts has in common, and the one over an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, Protocol, overload

import numpy as np

from clearhead.config import build
from clearhead.engines.directory import Exported
from clearhead.engines.hypotheses import State
from clearhead.engines.ranking import Doubles, Floats, Ids, log_softmax
from clearhead.engines.search import generate, searching
from clearhead.errors import ConfigError, DataError
from clearhead.generate.hypothesis import Hypothesis
from clearhead.generate.repeats import MAX_REPEATS, guard_span
from clearhead.generate.settings import GenerationConfig
from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from clearhead.text.streaming import StopStrings, TextStream, cut
from clearhead.text.tokenizer import Tokenizer

CACHED_TOKENS = 16_384
"""Tokens, of all texts that are written side by side, whose keys and values are in memory at once."""
SCORES = 2**24
"""Scores of texts that are read, of all tokens and the whole vocabulary, that are in memory at once."""


@dataclass(frozen=True)
class Continuation:
    """What came after a prompt, once."""

    text: str
    log_prob: float
    """The log-probability of all its tokens together."""
    tokens: int
    is_stopped: bool
    """Whether a stop string ended it, and not the longest length."""


class TextWriter(ABC):
    """A language model ready for use, whatever computes."""

    kind: ClassVar[str] = "gpt"

    def __init__(self, tokenizer: Tokenizer, generation: GenerationConfig, max_len: int) -> None:
        self.tokenizer = tokenizer
        self.generation = generation
        self.max_len = max_len
        """How many tokens the model sees at once, at most."""
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

    def _stream(self, prompt: Sequence[int], config: GenerationConfig) -> Iterator[str]:
        text = TextStream(self.tokenizer, config.stop)
        for tokens in self.tokens(prompt, config):
            piece = text.add(tokens)
            if piece:
                yield piece
        rest = text.end()
        if rest:
            yield rest

    def search(
        self,
        prompts: Sequence[Sequence[int]],
        config: GenerationConfig,
        row_keys: Sequence[int] | None = None,
        watch: Callable[[Any], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses for prompts as ids; those of one length are written side by side, `watch` sees each step."""
        # Of one length, because then all stand at the same place: no padding, so no mask, with any position scheme.
        keys = range(len(prompts)) if row_keys is None else row_keys
        most = max(1, CACHED_TOKENS // (self.max_len * config.hypotheses))
        found: list[list[Hypothesis]] = [[] for _ in prompts]
        order = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
        for _, group in groupby(order, key=lambda row: len(prompts[row])):
            alike = list(group)
            for rows in (alike[first : first + most] for first in range(0, len(alike), most)):
                results = self.search_alike([prompts[row] for row in rows], config, [keys[row] for row in rows], watch)
                for row, best in zip(rows, results, strict=True):
                    found[row] = best
        return found

    @abstractmethod
    def search_alike(
        self,
        prompts: Sequence[Sequence[int]],
        config: GenerationConfig,
        row_keys: Sequence[int],
        watch: Callable[[Any], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses for prompts of one length, all in one batch."""

    @abstractmethod
    def tokens(self, prompt: Sequence[int], config: GenerationConfig) -> Iterator[list[int]]:
        """What is added to one prompt, token by token."""

    @abstractmethod
    def logits(self, prompt: Sequence[int], said: Sequence[int]) -> Floats:
        """The scores of the token after a prompt and after each token that was added: for comparisons."""

    @abstractmethod
    def surprise(self, inputs: Ids, answers: Ids) -> Doubles:
        """The negative log-likelihood of each row's answers together, padding left out; inputs begin new texts."""

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

    def first_seen(self, length: int) -> int:
        """Where the part of a text of this length begins that the model sees."""
        return first_seen(length, self.max_len)

    def limits(self, prompts: Sequence[Sequence[int]], config: GenerationConfig) -> dict[str, Any]:
        """What any search has to know beyond the settings."""
        return {
            "max_lens": [config.max_len or self.max_len] * len(prompts),
            # A text has no end that could be learnt: it goes on for as long as is asked for.
            "forbidden_ids": (BOS_ID, EOS_ID, PAD_ID, UNK_ID),
            "guard_span": guard_span(self.tokenizer.kind),
            "stop": StopStrings(self.tokenizer, config.stop) if config.stop else None,
        }

    def _continuation(self, hypothesis: Hypothesis, config: GenerationConfig) -> Continuation:
        text = self.tokenizer.decode(hypothesis.ids)
        before = cut(text, config.stop)
        return Continuation(
            text if before is None else before, hypothesis.log_prob, len(hypothesis.ids), before is not None
        )


def first_seen(length: int, max_len: int) -> int:
    """Where the part of a text of this length begins that a model sees: a window that slides by quarters.

    >>> first_seen(8, 8), first_seen(9, 8), first_seen(11, 8)
    (0, 2, 4)
    """
    stride = max(1, max_len // 4)
    return max(0, -(-(length - max_len) // stride)) * stride


class WritingEngine(Protocol):
    """What runs an exported language model."""

    name: str

    def start(self, seen: Ids) -> State:
        """Read texts of one length, (rows, time), which may be 0; what comes back is carried from step to step."""

    def step(self, ids: Ids, state: Any) -> tuple[Floats, State]:
        """Feed the newest token of each row; the logits of the next one come back.

        A text that is longer than the model sees is seen from `first_seen` on.
        """

    def read(self, ids: Ids) -> Floats:
        """The scores after each token of texts of one length, (rows, time, vocabulary), not longer than is seen."""


class ExportedWriter(TextWriter):
    """A language model that an engine runs; how many cores it uses was said when it was opened."""

    def __init__(self, engine: WritingEngine, tokenizer: Tokenizer, exported: Exported) -> None:
        super().__init__(tokenizer, exported.generation, exported.notes.max_len)
        self.engine = engine
        self.path = exported.path

    def search_alike(
        self,
        prompts: Sequence[Sequence[int]],
        config: GenerationConfig,
        row_keys: Sequence[int],
        watch: Callable[[Any], None] | None = None,
    ) -> list[list[Hypothesis]]:
        limits = self.limits(prompts, config)
        return generate(self.engine.step, self._start(prompts), config, row_keys=row_keys, watch=watch, **limits)

    def tokens(self, prompt: Sequence[int], config: GenerationConfig) -> Iterator[list[int]]:
        limits = self.limits([prompt], config)
        for choice in searching(self.engine.step, self._start([prompt]), config, row_keys=[0], **limits):
            yield choice.tokens.tolist()

    def logits(self, prompt: Sequence[int], said: Sequence[int]) -> Floats:
        state, found = self._start([prompt]), []
        for token in (prompt[-1], *said):
            logits, state = self.engine.step(np.array([token]), state)
            found.append(logits[0])
        return np.stack(found)

    def surprise(self, inputs: Ids, answers: Ids) -> Doubles:
        found = np.empty(len(inputs))
        size = max(1, SCORES // (inputs.shape[1] * self.tokenizer.vocab_size))
        for first in range(0, len(inputs), size):
            rows = slice(first, first + size)
            log_probs = log_softmax(self.engine.read(inputs[rows]))
            chosen = np.take_along_axis(log_probs, answers[rows, :, None], 2)[..., 0]
            found[rows] = -np.where(answers[rows] == PAD_ID, 0.0, chosen).sum(1, dtype=np.float64)
        return found

    def limits(self, prompts: Sequence[Sequence[int]], config: GenerationConfig) -> dict[str, Any]:
        """The same, and the last token of each prompt, which is yet to be fed."""
        firsts = {"first_ids": [ids[-1] for ids in prompts], "repeats_allowed": [MAX_REPEATS] * len(prompts)}
        return {**super().limits(prompts, config), **firsts}

    def _start(self, prompts: Sequence[Sequence[int]]) -> State:
        before = np.array([ids[:-1] for ids in prompts], np.int64).reshape(len(prompts), -1)
        return self.engine.start(before[:, self.first_seen(before.shape[1]) :])
