"""A classifier and texts in, their labels out, with probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.config import build
from clearhead.data.cutting import LongTexts, long_texts
from clearhead.data.examples import Integers
from clearhead.data.labelled import framed
from clearhead.data.lines import without_controls
from clearhead.errors import DataError
from clearhead.models.classifier import Classifier, joined
from clearhead.models.reduction import ReduceConfig, reduce_tokens
from clearhead.nn.masks import real_tokens
from clearhead.run.devices import pick_device
from clearhead.text.specials import PAD_ID
from clearhead.text.tokenizer import TokenizerPair, check_encodable
from clearhead.text.turns import next_turn

if TYPE_CHECKING:
    from clearhead.run.inspecting import Inspection

BATCH_TOKENS = 8192
"""Tokens, padding included, that are read side by side."""
WINDOW = 512
"""Texts read ahead, so that those of a length can go together; memory is bounded by this."""


@dataclass(frozen=True)
class Classified:
    """What a model takes a text for."""

    label: str
    """Empty if the text was."""
    probability: float
    probabilities: dict[str, float]
    """Of every label; of none if there was nothing to read."""
    tokens: int
    """How many the text has ..."""
    read: int
    """... and how many of them were read."""


NOTHING = Classified("", 0.0, {}, 0, 0)


class LoadedClassifier:
    """A trained classifier, ready for use."""

    def __init__(self, model: Classifier, tokenizers: TokenizerPair, device: str = "cpu") -> None:
        self.device = pick_device(device)
        self.model = model.to(self.device).eval()
        self.tokenizers = tokenizers
        self.path: Path | None = None
        """Where it was loaded from."""

    @property
    def labels(self) -> list[str]:
        """The labels there are."""
        return self.model.config.labels

    @property
    def long_texts(self) -> LongTexts:
        """How texts that are too long are read."""
        config = self.model.config
        return long_texts(config.long_texts, config.max_len, config.head)

    @overload
    def classify(self, texts: str) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def classify(self, texts: Iterable[str]) -> list[str]: ...
    def classify(self, texts: str | Iterable[str]) -> str | list[str]:
        """The label of one text or of many; that of an empty text is empty."""
        if isinstance(texts, str):
            return self.classify([texts])[0]
        return [found.label for found in self.stream(texts)]

    def probabilities(self, texts: str | Iterable[str]) -> Any:
        """The probability of every label, for one text as a dictionary, for many as a list of them."""
        if isinstance(texts, str):
            return next(self.stream([texts])).probabilities
        return [found.probabilities for found in self.stream(texts)]

    def stream(self, texts: Iterable[str | None]) -> Iterator[Classified]:
        """What each text is taken for, in order, in constant memory; a None says that no more come for a while."""
        remaining, first = iter(texts), 0
        while window := next_turn(remaining, WINDOW):
            yield from self._window(window, first)
            first += len(window)

    def _window(self, texts: Sequence[str], first: int) -> Iterator[Classified]:
        filled = [row for row, text in enumerate(texts) if text.strip()]
        ids = self._encode([texts[row] for row in filled], [first + row for row in filled])
        cut = self.long_texts
        found = dict(zip(filled, zip(ids, self.judged(ids), strict=True), strict=True))
        for row in range(len(texts)):
            if row not in found:
                yield NOTHING
                continue
            tokens, probs = found[row]
            read = len(tokens) if cut.num_pieces(np.array([len(tokens)]))[0] > 1 else min(len(tokens), cut.room)
            shares = dict(zip(self.labels, probs.tolist(), strict=True))
            yield Classified(self.labels[int(probs.argmax())], float(probs.max()), shares, len(tokens), read)

    def _encode(self, texts: Sequence[str], numbers: Sequence[int]) -> list[Integers]:
        # As in training, where a text is one line without control characters.
        flat = [without_controls(" ".join(text.split("\n"))).strip() for text in texts]
        for number, text in zip(numbers, flat, strict=True):
            try:
                check_encodable([text])
            except DataError as error:
                raise DataError(f"text {number + 1:,}: {error}") from None
        return [np.array(ids, dtype=np.int64) for ids in self.tokenizers.source.encode_batch(flat)]

    def judged(self, texts: Sequence[Integers]) -> NDArray[np.float32]:
        """A row of probabilities for the tokens of each text, however long it is."""
        pieces = [self.long_texts.pieces(ids) for ids in texts]
        owners = np.repeat(np.arange(len(texts)), [len(row) for row in pieces])
        flat = [piece for row in pieces for piece in row]
        order = np.argsort([len(piece) for piece in flat], kind="stable")
        logits = torch.empty(len(flat), len(self.labels))
        for rows in _batches(order, [len(piece) + 2 for piece in flat]):
            logits[rows] = self._logits([flat[row] for row in rows])
        found: NDArray[np.float32] = joined(logits, torch.from_numpy(owners), len(texts)).exp().numpy()
        return found

    @torch.inference_mode()
    def _logits(self, pieces: Sequence[Integers]) -> torch.Tensor:
        array, lengths = framed(pieces)
        ids = torch.from_numpy(array).to(self.device)
        is_full = bool((lengths == array.shape[1]).all())
        logits: torch.Tensor = self.model(ids, None if is_full else real_tokens(ids, PAD_ID))
        return logits.float().cpu()

    def reduce(self, **settings: Any) -> None:
        """Let its tokens become fewer, by the settings of `model.reduce`, such as kind="prune"; none undoes it."""
        reduce_tokens(self.model, build(ReduceConfig, settings, "reduce"))

    def inspect(self, text: str, target: str | None = None, *, ablate: Sequence[str] = ()) -> Inspection:
        """Look at every head while a text is read; `ablate` names heads to switch off, `target` a label to expect."""
        from clearhead.run.inspecting_readers import inspect_classifier

        return inspect_classifier(self, text, target, ablate=ablate)


def _batches(order: Integers, sizes: Sequence[int]) -> Iterator[list[int]]:
    """Rows that go together, none of the batches too large."""
    batch: list[int] = []
    for row in order.tolist():
        if batch and (len(batch) + 1) * sizes[row] > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
