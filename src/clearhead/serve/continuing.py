"""A language model on any engine in, a writer out: continuations side by side, each told piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np

from clearhead.engines.hypotheses import Choice
from clearhead.engines.ranking import best_few
from clearhead.engines.writing import CACHED_TOKENS, TextWriter
from clearhead.errors import DataError
from clearhead.generate.settings import GenerationConfig
from clearhead.serve.backends import Lane, Piece, Prompt, Watch, WriteOptions, Written, WrittenToken
from clearhead.text.specials import SPECIALS
from clearhead.text.streaming import TextStream
from clearhead.text.tokenizer import Tokenizer, check_encodable

LEAST_SHARE = 1e-6
"""OpenAI's top_p may be 0, which means the likeliest token alone."""
WithLeaving: TypeAlias = Callable[[Any, Watch], TextWriter]
"""A model in, the same model out, but that rows that are unwanted by now end at its next step."""


class Continuer:
    """A language model, for batches of prompts."""

    most_tokens = CACHED_TOKENS
    longest = None
    """Of a text that grows too long for the model, it sees the end."""

    def __init__(self, model: TextWriter, lane: Lane, leaving: WithLeaving, most_rows: int | None = None) -> None:
        self._model = model
        self._leaving = leaving
        self.lane = lane
        self.most_rows = most_rows or max(1, CACHED_TOKENS // model.max_len)

    def read(self, text: str) -> tuple[int, ...]:
        """The ids of a prompt."""
        check_encodable([text])
        return tuple(self._model.encode(text))

    def text(self, ids: Sequence[int]) -> str:
        """The text of a prompt's ids, or a DataError if some are none of a text."""
        size = self._model.tokenizer.vocab_size
        if not all(len(SPECIALS) <= index < size for index in ids):
            raise DataError(f"a prompt's tokens are numbers from {len(SPECIALS)} to {size - 1}")
        return self._model.tokenizer.decode(ids)

    def group(self, prompt: Prompt) -> Hashable:
        """Those that are as long, and may become as long, are written side by side."""
        return len(prompt.ids), prompt.most_tokens

    def write_batch(self, prompts: Sequence[Prompt], options: WriteOptions, watch: Watch) -> list[Written]:
        """The continuation of each prompt; all are of one group."""
        model = self._leaving(self._model, watch)
        rows = [_Row(model.tokenizer, options.stop) for _ in prompts]

        def hear(choice: Any) -> None:
            for place, token in _chosen(_in_numpy(choice), model.tokenizer, options.top):
                piece = rows[place].add(*token)
                if piece is not None:
                    watch.tell(place, piece)

        config = _config(model, options, prompts[0].most_tokens)
        model.search([prompt.ids for prompt in prompts], config, [prompt.chance for prompt in prompts], hear)
        for place, row in enumerate(rows):
            piece = row.end()
            if piece is not None:
                watch.tell(place, piece)
        return [row.written() for row in rows]


class _Row:
    """One continuation as it grows."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        self._stream = TextStream(tokenizer, stop)
        self._texts: list[str] = []
        self._tokens: list[WrittenToken] = []
        self._untold = 0

    def add(self, index: int, token: WrittenToken) -> Piece | None:
        """Take one token more; what can be said now, if anything."""
        self._tokens.append(token)
        self._untold += 1
        text = self._stream.add([index])
        return self._piece(text) if text else None

    def end(self) -> Piece | None:
        """What is left to be said."""
        text = self._stream.end()
        return self._piece(text) if text or self._untold else None

    def _piece(self, text: str) -> Piece:
        self._texts.append(text)
        fresh = tuple(self._tokens[len(self._tokens) - self._untold :])
        self._untold = 0
        return Piece(text, fresh)

    def written(self) -> Written:
        """The whole."""
        return Written("".join(self._texts), tuple(self._tokens), "stop" if self._stream.is_stopped else "length")


def _config(model: TextWriter, options: WriteOptions, most_tokens: int) -> GenerationConfig:
    wishes: dict[str, Any] = {
        "strategy": "sample",
        "nbest": 1,
        "temperature": options.temperature,
        "top_k": 0,
        "top_p": max(options.top_p, LEAST_SHARE),
        "min_p": 0.0,
        "stop": list(options.stop),
        # What is drawn follows from each prompt's own number.
        "seed": 0,
    }
    return model.configured(**wishes, length=most_tokens)


def _in_numpy(choice: Any) -> Choice:
    """What any engine chose in a step; torch says it in tensors, on any device."""
    seen = [getattr(choice, name) for name in Choice._fields]
    return Choice(*(value.cpu().numpy() if hasattr(value, "cpu") else value for value in seen))


def _chosen(choice: Choice, tokenizer: Tokenizer, top: int) -> list[tuple[int, tuple[int, WrittenToken]]]:
    """For each row that goes on, its place in the batch, and its token with the likeliest ones beside it."""
    places = choice.origin[choice.rows].tolist()
    tokens = choice.tokens.tolist()
    log_probs = choice.log_probs[choice.rows]
    chosen = np.take_along_axis(log_probs, choice.tokens[:, None], 1)[:, 0].tolist()
    likely: list[tuple[tuple[str, float], ...]] = [()] * len(tokens)
    if top:
        values, indices = best_few(log_probs, top)
        likely = [
            tuple((_shown(tokenizer, index), value) for index, value in zip(row, shares, strict=True) if value > -1e30)
            for row, shares in zip(indices.tolist(), values.tolist(), strict=True)
        ]
    return [
        (place, (token, WrittenToken(_shown(tokenizer, token), log_prob, others)))
        for place, token, log_prob, others in zip(places, tokens, chosen, likely, strict=True)
        # The end is no text: only rows that nobody waits for any more come to one.
        if token >= len(SPECIALS)
    ]


def _shown(tokenizer: Tokenizer, index: int) -> str:
    """A token as text; one that is a part of a character, as OpenAI shows it."""
    if index < len(SPECIALS):
        return SPECIALS[index]
    raw = tokenizer.raw([index])
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
