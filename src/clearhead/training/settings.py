"""The settings of a training run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from clearhead.config import Record, one_of
from clearhead.training.distributed import SHARDINGS
from clearhead.training.losses import LOSSES
from clearhead.training.optimizers import OPTIMIZERS
from clearhead.training.precision import AUTO, PRECISIONS
from clearhead.training.schedules import SCHEDULES


class TrainConfig(Record):
    """How a model is trained."""

    seed: int = Field(1, ge=0, lt=2**63)
    """Fixes initial weights, dropout and the order of the data: the same seed on as many processes repeats the run bit
    for bit on a CPU."""
    steps: int | None = Field(None, ge=1)
    """Optimizer steps; with epochs as well, whichever is reached first."""
    epochs: float | None = Field(None, gt=0)
    """Passes over the data."""
    accumulate: int = Field(1, ge=1)
    """Batches whose gradients are added up before each optimizer step, however many processes share them."""
    optimizer: Annotated[str, one_of(OPTIMIZERS, "optimizer")] = "adam"
    """Which rule turns gradients into steps."""
    lr: float = Field(1e-3, gt=0)
    """The peak learning rate; for the noam schedule a plain factor, usually 1."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Adam's memory of the gradient."""
    beta2: float = Field(0.98, ge=0, lt=1)
    """Adam's memory of the squared gradient."""
    eps: float = Field(1e-9, gt=0)
    """Adam's guard against division by zero."""
    weight_decay: float = Field(0.0, ge=0)
    """Pull of the weights towards zero."""
    layer_decay: float = Field(1.0, gt=0, le=1)
    """Below 1, layers near the input learn more slowly, each by this factor than the one above it and the embeddings
    most of all: for models that start from others (init)."""
    table_rate: float = Field(1.0, gt=0)
    """The part of the learning rate for tables with a row for each token. A rare token moves by several times the rate
    whenever it is seen, so what suits the matrices is too much for it where the vocabulary is large."""
    threshold_rate: float = Field(30.0, gt=0)
    """How many times the learning rate thresholds move by that say which tokens are dropped (model.reduce): they are
    numbers of about one, and not weights of a few hundredths."""
    schedule: Annotated[str, one_of(SCHEDULES, "schedule")] = "inverse_sqrt"
    """How the learning rate rises and falls."""
    warmup: int = Field(400, ge=0)
    """Steps over which the learning rate rises."""
    clip: float = Field(1.0, ge=0)
    """Gradients longer than this are shortened to it; 0 leaves them as they are."""
    loss: Annotated[str, one_of(LOSSES, "loss")] = "cross_entropy"
    """What is minimised."""
    smoothing: float = Field(0.1, ge=0, lt=1)
    """Share of each label that is spread over the rest of the vocabulary."""
    agreement: float = Field(0.0, ge=0)
    """Above 0, each batch is read twice with different features dropped, and the two are asked to agree, with this
    weight (R-Drop; 3 to 5 suits small data). A step takes twice as long."""
    precision: Annotated[str, one_of([*PRECISIONS, AUTO], "precision")] = "fp32"
    """The number format of matrix products; auto is bf16 where the machine has instructions for it, else fp32."""
    sharding: Annotated[str, one_of(SHARDINGS, "sharding")] = "none"
    """What many processes share out beside the data: none (each has the whole model), full (each has a part of
    weights, gradients and optimizer state)."""
    log_every: int = Field(20, ge=1)
    """Steps between progress reports."""
    validate_every: int = Field(500, ge=1)
    """Steps between validations; each is followed by a checkpoint."""
    save_every: int | None = Field(None, ge=1)
    """Steps between further checkpoints."""
    patience: int | None = Field(None, ge=1)
    """Stop after this many validations without a better loss."""
    keep_last: int = Field(3, ge=1)
    """How many of the newest checkpoints are kept."""
    keep_best: int = Field(1, ge=1)
    """How many of the best checkpoints are kept."""
    average: int = Field(0, ge=0)
    """At the end, average this many checkpoints; the average is used if its validation loss is the lowest."""
    average_of: Annotated[str, one_of(["last", "best"], "choice of checkpoints")] = "last"
    """Which checkpoints are averaged."""

    @model_validator(mode="after")
    def _check(self) -> TrainConfig:
        if self.steps is None and self.epochs is None:
            raise ValueError("say how long to train: set train.steps or train.epochs")
        if self.optimizer == "muon" and self.sharding != "none":
            raise ValueError(
                "muon needs whole matrices, and train.sharding cuts them up: use adamw, or sharding = 'none'"
            )
        if self.average > (self.keep_last if self.average_of == "last" else self.keep_best):
            raise ValueError(f"averaging {self.average} checkpoints needs train.keep_{self.average_of} to be as many")
        return self

    def total_steps(self, batches_per_epoch: int) -> int:
        """How many optimizer steps the run takes."""
        by_epochs = None if self.epochs is None else max(1, round(self.epochs * batches_per_epoch / self.accumulate))
        return min(limit for limit in (self.steps, by_epochs) if limit is not None)
