"""A Vision Transformer and pictures in, their labels out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.data.examples import Integers
from clearhead.data.number_split import Split
from clearhead.data.picture_reading import Form
from clearhead.data.pictures import PictureExamples, Pictures, PicturesConfig, open_set, opening, set_aside
from clearhead.engines.seeing import PictureClassifier
from clearhead.engines.seeing import Seen as Seen
from clearhead.errors import ConfigError, DataError, choose
from clearhead.models.vit import Vit
from clearhead.run.devices import pick_device
from clearhead.run.reducing import Reducible
from clearhead.run.settings import VitRun, trained_by
from clearhead.training.events import Pace, Reading
from clearhead.verdicts import Verdicts, judge

if TYPE_CHECKING:
    from clearhead.export.verify import Parity
    from clearhead.run.looking import PictureInspection

SPLITS: dict[str, Split] = {"validation": "validation", "test": "test"}


class LoadedVit(Reducible, PictureClassifier):
    """A trained Vision Transformer, ready for use in torch."""

    def __init__(self, model: Vit, device: str = "cpu") -> None:
        config = model.config
        super().__init__(config.labels, Form(config.height, config.width, config.channels), config.max_len)
        self.device = pick_device(device)
        self.model = model.to(self.device).eval()

    @torch.inference_mode()
    def logits(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        logits = self.model(torch.from_numpy(np.ascontiguousarray(pixels)).to(self.device))
        found: NDArray[np.float32] = logits.float().cpu().numpy()
        return found

    def export(self, to: str, out: str | Path, **options: Any) -> Parity:
        """Write it for another engine, `onnx`; options are those of `run.exporting.export`."""
        from clearhead.run.exporting import export_loaded

        return export_loaded(self, to, Path(out), **options)

    def inspect(self, picture: str | Path, *, ablate: Sequence[str] = ()) -> PictureInspection:
        """Look at every head while it looks at a picture; `ablate` names heads to switch off."""
        from clearhead.run.looking import inspect

        return inspect(self, Path(picture), ablate=ablate)


def open_split(
    data: PicturesConfig,
    split: Split,
    names: tuple[str, ...] = (),
    form: Form | None = None,
    progress: Callable[[Reading], None] | None = None,
) -> Pictures | None:
    """The pictures of a split, decoded; with the labels and in the form that others have, where these are given."""
    found = open_set(data, split, names)
    if found is None:
        return None
    if form is None:
        form = found.form(None if data.size is None else (data.size[0], data.size[1]), data.channels)
    steps, pace = opening(found, form), Pace("reading", len(found), "pictures")
    while True:
        try:
            reading = pace.at(next(steps))
        except StopIteration as end:
            pictures: Pictures = end.value
            return pictures
        if reading is not None and progress is not None:
            progress(reading)


def pictures_to_score(
    loaded: PictureClassifier, model: Path, split: str | None, folder: Path | None = None, limit: int | None = None
) -> PictureExamples:
    """Labelled pictures to try a model on: those in a folder, or those that its training config names or holds out."""
    if folder is not None:
        pictures = _like(loaded, PicturesConfig(pictures=str(folder)), "train")
        assert pictures is not None
        return _examples(loaded, pictures, np.arange(len(pictures)), limit)
    config, chosen = trained_by(model), choose(SPLITS, split or "", "split")
    assert config is None or isinstance(config, VitRun)
    pictures = _like(loaded, config.data, chosen) if config is not None else None
    if pictures is not None:
        return _examples(loaded, pictures, np.arange(len(pictures)), limit)
    if config is None or (chosen == "test" and config.data.hold_out_test is None):
        raise ConfigError(f"the model's training config names no {split} data: use --folder DIR")
    pictures = _like(loaded, config.data, "train")
    assert pictures is not None
    held_out, tested = set_aside(pictures, config.data, config.train.seed, validate=True)
    return _examples(loaded, pictures, np.flatnonzero(tested if chosen == "test" else held_out), limit)


def _like(loaded: PictureClassifier, data: PicturesConfig, split: Split) -> Pictures | None:
    """The pictures of a split with the labels and in the form that a model was trained on."""
    return open_split(data, split, tuple(loaded.labels), loaded.form)


def _examples(loaded: PictureClassifier, pictures: Pictures, rows: Integers, limit: int | None) -> PictureExamples:
    if limit is not None and limit < len(rows):
        # Evenly spaced: folders are sorted by label.
        rows = rows[np.arange(limit) * len(rows) // limit]
    return PictureExamples(pictures, rows, loaded.num_tokens)


class Judged(NamedTuple):
    """How right a model is."""

    verdicts: Verdicts
    answers: list[str]
    right: list[bool]


def judged(loaded: PictureClassifier, examples: PictureExamples, progress: Callable[[int], None]) -> Judged:
    """Let a model look at labelled pictures, and compare; `progress` hears how many are done."""
    rows, truth, size = [], [], loaded.batch_size
    for first in range(0, len(examples), size):
        batch = examples.batch(np.arange(first, min(first + size, len(examples))), None)
        rows.append(loaded.probabilities(batch.pictures))
        truth += batch.labels.tolist()
        progress(len(truth))
    if not rows:
        raise DataError("there is nothing to score: no labelled pictures")
    probs = np.concatenate(rows)
    places = probs.argmax(1).tolist()
    right = [place == label for place, label in zip(places, truth, strict=True)]
    return Judged(judge(probs, truth, loaded.labels), [loaded.labels[place] for place in places], right)
