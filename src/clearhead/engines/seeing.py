"""Pictures in, their labels out: what all that see have in common, and the one over an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from clearhead.data.picture_reading import Form, read_picture
from clearhead.engines.classifying import ReadingEngine
from clearhead.engines.directory import Exported
from clearhead.engines.ranking import Floats, log_softmax
from clearhead.text.turns import next_turn

BATCH_TOKENS = 8192
"""Patches that are looked at side by side."""


@dataclass(frozen=True)
class Seen:
    """What a model takes a picture for."""

    label: str
    probability: float
    probabilities: dict[str, float]
    """Of every label."""
    size: tuple[int, int]
    """Height and width that the file has; if these are not the model's, the picture was resized."""


class PictureClassifier(ABC):
    """A Vision Transformer ready for use, whatever computes."""

    kind: ClassVar[str] = "vit"

    def __init__(self, labels: Sequence[str], form: Form, num_tokens: int) -> None:
        self.labels = list(labels)
        """The labels there are."""
        self.form = form
        """What pictures are made like before they are looked at."""
        self.num_tokens = num_tokens
        """How many tokens a picture is."""
        self.batch_size = max(1, BATCH_TOKENS // num_tokens)
        """How many pictures are looked at side by side."""
        self.path: Path | None = None
        """Where it was loaded from."""

    @overload
    def classify(self, pictures: str) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def classify(self, pictures: Path) -> str: ...
    @overload
    def classify(self, pictures: Iterable[str | Path]) -> list[str]: ...
    def classify(self, pictures: str | Path | Iterable[str | Path]) -> str | list[str]:
        """The label of one picture file or of many; that of an empty name is empty."""
        if isinstance(pictures, str | Path):
            return self.classify([pictures])[0]
        return [seen.label for seen in self.stream(pictures)]

    def stream(self, paths: Iterable[str | Path | None]) -> Iterator[Seen]:
        """What each picture file is taken for, in order, in constant memory; a None says that no more come now."""
        remaining = (None if path is None else str(path) for path in paths)
        while some := next_turn(remaining, self.batch_size):
            seen = self._seen([path for path in some if path.strip()])
            for path in some:
                yield next(seen) if path.strip() else Seen("", 0.0, {}, self.form[:2])

    def _seen(self, paths: Sequence[str]) -> Iterator[Seen]:
        if not paths:
            return
        read = [read_picture(Path(path), self.form) for path in paths]
        probs = self.probabilities(np.stack([pixels for pixels, _ in read]))
        for row, (_, size) in zip(probs.tolist(), read, strict=True):
            best = max(range(len(row)), key=row.__getitem__)
            yield Seen(self.labels[best], row[best], dict(zip(self.labels, row, strict=True)), size)

    def probabilities(self, pixels: NDArray[np.uint8]) -> Floats:
        """A row of probabilities for each picture, from (pictures, channels, height, width)."""
        return np.exp(log_softmax(self.logits(pixels)))

    @abstractmethod
    def logits(self, pixels: NDArray[np.uint8]) -> Floats:
        """The scores of the labels of each picture."""


class ExportedPictureClassifier(PictureClassifier):
    """A Vision Transformer that an engine runs."""

    def __init__(self, engine: ReadingEngine, exported: Exported) -> None:
        shape = exported.notes.model
        form = Form(shape["height"], shape["width"], shape["channels"])
        super().__init__(shape["labels"], form, exported.notes.max_len)
        self.engine = engine
        self.path = exported.path

    def logits(self, pixels: NDArray[np.uint8]) -> Floats:
        return self.engine.answer(pictures=np.ascontiguousarray(pixels))
