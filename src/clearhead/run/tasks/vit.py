"""Pictures: they are decoded, some set aside, and trained on with light distortions; validation shows labels."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearhead.checkpoint import StoredModel
from clearhead.config import Tree
from clearhead.data.pictures import (
    PictureExamples,
    Pictures,
    check_known,
    check_labels,
    mean_and_spread,
    seen_before,
    set_aside,
)
from clearhead.data.sets import SETS
from clearhead.errors import ConfigError, DataError
from clearhead.models.vit import Vit, VitConfig
from clearhead.run.seeing import LoadedVit, open_split
from clearhead.run.settings import VitRun
from clearhead.run.task import About, Asked, Prepared, Progress, Task, Ticket, Trial, shown
from clearhead.text.tokenizer import TokenizerPair
from clearhead.training.events import Noted, Reading, Sample, Terms
from clearhead.training.sizing import Choice

ENOUGH_FOR_MEANS = 20_000
"""Pictures whose mean and spread stand for those of all."""
FEW_PATCHES, MOST_PATCHES = 36, 100
"""About so many patches are cut from a picture unless somebody asks for others."""
MOST_NAMED = 12


@dataclass(frozen=True, eq=False)
class Examined:
    """The pictures, and which of them are set aside."""

    name: str
    pictures: Pictures
    validation: Pictures | None
    """Where these are other pictures; else some are held out."""
    held_out: NDArray[np.bool_]
    tested: NDArray[np.bool_]

    @property
    def trained(self) -> NDArray[np.bool_]:
        return ~(self.held_out | self.tested)


class VitTask(Task[VitRun, Examined, Vit]):
    """From pictures with labels to a model that tells them apart."""

    verb = "classify"
    terms = Terms("pictures", ("picture", "label", "said"), has_perplexity=False)

    def given(self, files: Mapping[str, str]) -> Tree:
        return dict(files)

    def examine(self, config: VitRun, progress: Progress | None = None) -> Examined:
        data = config.data
        pictures = open_split(data, "train", progress=progress)
        assert pictures is not None
        check_labels(pictures, str(data.pictures))
        validation = open_split(data, "validation", pictures.names, pictures.form, progress)
        if validation is not None:
            check_known(validation, pictures, str(data.validation_pictures))
        if data.hold_out_test is not None and data.test_pictures is not None:
            raise ConfigError("there are test data already: leave out data.hold_out_test, or the test files")
        held_out, tested = set_aside(pictures, data, config.train.seed, validate=validation is None)
        return Examined(str(data.pictures), pictures, validation, held_out, tested)

    def choose(self, config: VitRun, found: Examined, memory: int) -> list[Choice]:
        form, count = found.pictures.form, int(found.trained.sum())
        patch = fitting_patch(form.height, form.width)
        patches = (form.height // patch) * (form.width // patch)
        wide = count > 20_000
        batch = 64 if count > 2_000 else 16
        epochs = 30 if wide else 60 if count > 2_000 else 100
        steps = max(1, count // batch)
        return [
            Choice("model.patch", patch, f"{form.height} x {form.width} pixels make {patches} patches"),
            Choice("model.dim", 96 if wide else 64, f"{count:,} pictures: a wider model would learn them by heart"),
            Choice("model.ff_dim", 192 if wide else 128, "twice the width"),
            Choice("model.num_heads", 4, "16 or 24 features a head"),
            Choice("model.num_layers", 6 if wide else 4, "enough for small pictures, quick on a CPU"),
            Choice("model.dropout", 0.1, "a little of everything is dropped"),
            Choice("data.distort.shift", max(1, form.height // 14), "where a thing stands says little of what it is"),
            Choice("batches.batch_size", batch, f"about {steps:,} batches a pass"),
            Choice("train.optimizer", "adamw", "what Vision Transformers are trained with"),
            Choice("train.weight_decay", 0.05, "keeps weights small"),
            Choice("train.beta2", 0.999, "a long memory, for batches are small"),
            Choice("train.schedule", "cosine", "falls to zero at the end"),
            Choice("train.epochs", float(epochs), f"about what {count:,} pictures need"),
            Choice("train.lr", 1e-3, "the usual for this width"),
            Choice("train.warmup", min(500, 2 * steps), "two passes over small data, 500 steps at most"),
            Choice("train.validate_every", max(50, steps), "about once per pass"),
        ]

    def prepare(
        self, config: VitRun, found: Examined, tokenizers: TokenizerPair | None = None
    ) -> Generator[Noted | Reading, None, Prepared]:
        pictures, validation = found.pictures, found.validation
        for part, name in ((pictures, found.name), (validation, str(config.data.validation_pictures))):
            if part is not None:
                yield Noted(f"{name}: {len(part):,} pictures, {part.form}; {_listed(part.counts())}")
                for note in part.notes:
                    yield Noted(f"{name}: {note}")
        if validation is not None and (again := seen_before(pictures, validation)):
            yield Noted(f"{again:,} validation pictures are, pixel by pixel, also trained on")
        prepared = prepared_from(config, pictures, validation)
        tested = f", {np.count_nonzero(found.tested):,} to test on" if found.tested.any() else ""
        trained = f"{len(prepared.training):,} pictures to train on"
        yield Noted(f"{trained}, {len(prepared.validation):,} to validate on{tested}")
        return prepared

    def open_prepared(self, config: VitRun, tokenizers: TokenizerPair | None, ticket: Ticket) -> Prepared:
        pictures = Pictures.open(ticket[0])
        return prepared_from(config, pictures, Pictures.open(ticket[1]) if ticket[1] else None)

    def shape(self, config: VitRun, prepared: Prepared) -> VitConfig:
        assert isinstance(prepared.training, PictureExamples)
        pictures, rows = prepared.training.pictures, prepared.training.rows
        mean, spread = mean_and_spread(pictures.pixels, rows[:: max(1, len(rows) // ENOUGH_FOR_MEANS)])
        return filled(config.model, pictures).model_copy(update={"mean": mean, "spread": spread})

    def samples(self, model: Vit, prepared: Prepared, device: str) -> tuple[Sample, ...]:
        examples = prepared.validation
        assert isinstance(examples, PictureExamples)
        loaded, names = LoadedVit(model, device), model.config.labels
        batch = examples.batch(np.array(shown(examples)), None)
        return tuple(
            Sample(f"picture {number + 1:,}", names[label], f"{names[probs.argmax()]} ({100 * probs.max():.0f} %)")
            for number, label, probs in zip(
                batch.indices, batch.labels, loaded.probabilities(batch.pictures), strict=True
            )
        )

    def about(self, config: VitRun) -> About:
        data, shape = config.data, config.model
        kept = "" if data.dataset is None else f" of the set {data.dataset} ({SETS[data.dataset].origin})"
        tokens = f"{shape.max_len} tokens"
        return About(
            title=f"Vision Transformer, {len(shape.labels)} labels",
            pipeline_tag="image-classification",
            languages=[],
            unit="pictures",
            origin=f"{data.pictures}{kept}",
            licence=SETS[data.dataset].licence if data.dataset is not None else None,
            rows={
                "pictures": f"{shape.height} x {shape.width}, {'grey' if shape.channels == 1 else 'coloured'}, in "
                f"patches of {shape.patch} x {shape.patch}: {tokens}",
                "shape": f"{shape.num_layers} layers, {shape.dim} wide, {shape.num_heads} heads, "
                f"{shape.residual}-norm, {shape.positions} positions, pooling: {shape.pooling}",
                "labels": ", ".join(shape.labels),
            },
            per="picture",
            example="clearhead classify --model . picture.png",
        )

    def use(self, stored: StoredModel, device: str) -> LoadedVit:
        assert isinstance(stored.model, Vit)
        loaded = LoadedVit(stored.model, device)
        loaded.path = stored.path
        return loaded

    def trial(self, loaded: LoadedVit, model: Path, asked: Asked) -> Trial:
        from clearhead.run.weighing import pictures

        return pictures(loaded, model, asked)


def prepared_from(config: VitRun, pictures: Pictures, validation: Pictures | None) -> Prepared:
    """Examples, from pictures that are decoded; which are set aside follows from the settings."""
    held_out, tested = set_aside(pictures, config.data, config.train.seed, validate=validation is None)
    tokens = filled(config.model, pictures).num_tokens
    trained = np.flatnonzero(~(held_out | tested))
    training = PictureExamples(pictures, trained, tokens, config.data.distort)
    if validation is None:
        validating = PictureExamples(pictures, np.flatnonzero(held_out), tokens)
    else:
        validating = PictureExamples(validation, np.arange(len(validation)), tokens)
    if not len(training):
        raise DataError(f"{config.data.pictures}: no picture is left to train on")
    at = pictures.at, validation.at if validation is not None else ""
    return Prepared(None, training, validating, len(training), lambda: at)


def filled(model: VitConfig, pictures: Pictures) -> VitConfig:
    """A model's settings with what comes from the pictures filled in."""
    form = pictures.form
    sizes = {"height": form.height, "width": form.width, "channels": form.channels}
    shape = model.model_copy(update={"labels": list(pictures.names), **sizes})
    return shape.model_copy(update={"max_len": shape.num_tokens})


def fitting_patch(height: int, width: int) -> int:
    """The side of a patch that cuts a picture into some tens of patches, as far as its sides allow.

    >>> fitting_patch(28, 28), fitting_patch(32, 32), fitting_patch(224, 224), fitting_patch(29, 31)
    (4, 4, 32, 1)
    """
    fitting = [side for side in range(1, min(height, width) + 1) if not height % side and not width % side]
    few = [side for side in fitting if (height // side) * (width // side) >= FEW_PATCHES]
    many = [side for side in few if (height // side) * (width // side) <= MOST_PATCHES]
    return (many or few or fitting)[-1]


def _listed(counts: dict[str, int]) -> str:
    named = [f"{name} {count:,}" for name, count in list(counts.items())[:MOST_NAMED]]
    rest = len(counts) - len(named)
    return f"{len(counts)} labels: {', '.join(named)}{f' and {rest} more' if rest else ''}"
