"""A configuration and prepared data in, a run that is ready to start out: model, optimizer, batches, checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clearhead.checkpoint import Checkpoints, StoredModel, model_tensors, restore_model
from clearhead.config import Record
from clearhead.data.batches import Batches, fixed_parts
from clearhead.models import MODELS, Model
from clearhead.run.settings import RunConfig
from clearhead.run.starting import take_weights
from clearhead.run.task import Prepared
from clearhead.run.tasks import TASKS
from clearhead.text.specials import PAD_ID
from clearhead.training.allocator import keep_memory
from clearhead.training.distributed import SOLO, Lesson, Sharded, Team, share_out
from clearhead.training.events import Sample
from clearhead.training.loop import Loop
from clearhead.training.losses import LOSSES
from clearhead.training.objectives import OBJECTIVES
from clearhead.training.optimizers import make_optimizer
from clearhead.training.precision import settled


@dataclass(frozen=True, eq=False)
class Assembled:
    """A run that is ready to start."""

    config: RunConfig
    prepared: Prepared
    model: Model
    loop: Loop
    checkpoints: Checkpoints
    taken: str | None = None
    """What weights were taken from where, if they were."""

    @property
    def team(self) -> Team:
        return self.loop.team

    @property
    def generation(self) -> dict[str, Any] | None:
        """How the model is used unless the user says otherwise, if it is one that writes."""
        return self.config.generation.model_dump() if self.model.generates else None


def assemble(
    config: RunConfig,
    prepared: Prepared,
    team: Team = SOLO,
    stop: Callable[[], bool] = lambda: False,
    start: StoredModel | None = None,
) -> Assembled:
    """Build model, optimizer, batches and checkpoints for a run; the seed fixes every initial weight.

    Where the leader has a model to start from, its weights are taken instead, as far as they fit.
    """
    config = _completed(config, prepared)
    shape = config.model
    keep_memory()
    settings = config.train
    with team.agreement():
        torch.manual_seed(settings.seed)
        model = MODELS[shape.kind](shape).to(team.device)
        taken = take_weights(model, start) if start is not None else None
    loss = LOSSES[settings.loss](settings.smoothing, PAD_ID, agreement=settings.agreement)
    precision = settled(settings.precision, team.device)
    sharing = share_out(Lesson(model, loss, OBJECTIVES[shape.kind], precision), team, settings.sharding)
    optimizer = make_optimizer(model, settings, team)
    checkpoints = Checkpoints(
        Path(config.out), model, optimizer, keep_last=settings.keep_last, keep_best=settings.keep_best, team=team
    )
    loop = Loop(
        sharing=sharing,
        optimizer=optimizer,
        batches=Batches(prepared.training, config.batches, settings.seed),
        config=settings,
        validation=lambda: fixed_parts(prepared.validation, config.batches, team.rank, team.size),
        samples=lambda: _leaders_samples(model, prepared, team, isinstance(sharing, Sharded)),
        keeper=checkpoints,
        dim=shape.dim,
        stop=stop,
        team=team,
        terms=TASKS[shape.kind].terms,
    )
    return Assembled(config, prepared, model, loop, checkpoints, taken)


def _completed(config: RunConfig, prepared: Prepared) -> RunConfig:
    """The settings with what comes from the data, and from tokenizers that were trained elsewhere, filled in."""
    known: dict[str, Record] = {"model": TASKS[config.model.kind].shape(config, prepared)}
    if prepared.tokenizers is not None:
        facts = {"kind": prepared.tokenizers.source.kind, "joint": prepared.tokenizers.joint}
        known["tokenizer"] = config.tokenizer.model_copy(update=facts)
    return config.model_copy(update=known)


def _leaders_samples(model: Model, prepared: Prepared, team: Team, is_sharded: bool) -> tuple[Sample, ...]:
    """Samples for people, who look over the leader's shoulder; of a model in shards it is lent a whole one."""
    kind = model.config.kind
    tensors = model_tensors(model, team) if is_sharded else {}
    if not team.leads:
        return ()
    if is_sharded:
        model = MODELS[kind](model.config)
        restore_model(model, tensors, Path())
        model.to(team.device)
    return TASKS[kind].samples(model, prepared, str(team.device))
