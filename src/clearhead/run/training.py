"""A resolved configuration in, training events out, and at the end a model directory that is ready for use."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.checkpoint import (
    Checkpoints,
    StoredModel,
    all_steps,
    best_first,
    describe_model,
    is_whole,
    model_tensors,
    read_tensors,
    restore_model,
    save_model,
    seal_description,
    verify_description,
)
from clearhead.config import Record
from clearhead.data.batches import Batches, fixed_parts
from clearhead.errors import MissingInputError, WouldOverwriteError
from clearhead.models import MODELS, Model
from clearhead.run.card import model_card
from clearhead.run.devices import pick_device
from clearhead.run.settings import RunConfig, read_config, settings_for
from clearhead.run.starting import read_start, take_weights
from clearhead.run.task import Prepared
from clearhead.run.tasks import TASKS
from clearhead.run.together import BEGUN, agree_on, continues, examine_together, join, prepare_together
from clearhead.storage import DRAFT, storage_error, write_text
from clearhead.text.specials import PAD_ID
from clearhead.text.tokenizer import TokenizerPair
from clearhead.training.allocator import keep_memory
from clearhead.training.averaging import average
from clearhead.training.distributed import SOLO, Lesson, Sharded, Team, share_out
from clearhead.training.estimate import estimate
from clearhead.training.events import Event, Finished, Noted, Reading, Sample
from clearhead.training.logbook import Logbook
from clearhead.training.loop import Loop, TrainingState
from clearhead.training.losses import LOSSES
from clearhead.training.objectives import OBJECTIVES
from clearhead.training.optimizers import make_optimizer

BEFORE_CONFIG = ("metrics.jsonl", "train.log")
"""What a run writes before its config.toml: alone, they are left from a start that failed, and nothing is lost."""


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


def train(
    config: RunConfig,
    *,
    examined: Any | None = None,
    device: str = "auto",
    stop: Callable[[], bool] = lambda: False,
    team: Team | None = None,
    progress: Callable[[Reading], None] | None = None,
) -> Iterator[Event]:
    """Train from the start, or on from the last checkpoint if torchrun had to start again; the events say how it goes.

    Under torchrun each process makes this call; `team` is given by those that have met already. `examined` is what the
    task of this kind of model has found in the data, if it was asked before; `progress` hears of the reading before
    the first event.
    """
    team = join(device) if team is None else team
    with team.working():
        config = agree_on(team, config)
        run = Path(config.out)
        if continues(team, run):
            return resume(run, [], stop=stop, team=team, progress=progress)
        with team.agreement():
            if team.leads and run.exists() and (not run.is_dir() or any(map(_is_worth_keeping, run.iterdir()))):
                raise WouldOverwriteError(f"{run} is not empty: go on with --resume, or choose another --out")
        team.note(BEGUN, str(run.resolve()))
        examined = examine_together(team, config, examined, progress)
    return _as_a_team(team, _recorded(team, run, _start(config, examined, team, stop)))


def rehearse(
    config: RunConfig,
    *,
    examined: Any | None = None,
    device: str = "auto",
    progress: Callable[[Reading], None] | None = None,
) -> Iterator[Noted | Reading]:
    """All that training would do before its first step: data report, sizes, estimate; nothing is written."""
    task, start = TASKS[config.model.kind], read_start(config)
    found = examined if examined is not None else task.examine(config, progress)
    prepared = yield from task.prepare(config, found, start.tokenizers if start else None)
    assembled = assemble(config, prepared, Team(device=pick_device(device)), start=start)
    yield from _introduced(assembled)


def resume(
    run: Path,
    assignments: list[str],
    *,
    device: str = "auto",
    stop: Callable[[], bool] = lambda: False,
    team: Team | None = None,
    progress: Callable[[Reading], None] | None = None,
) -> Iterator[Event]:
    """Go on exactly where the last checkpoint of a run stands, on as many processes as there are now."""
    team = join(device) if team is None else team
    config = None
    with team.working():
        with team.agreement():
            if team.leads:
                config = _stored_config(run, assignments)
        config = agree_on(team, config)
        team.note(BEGUN, str(run.resolve()))
        examined = examine_together(team, config, None, progress)
    return _as_a_team(team, _resume(config, examined, team, stop))


def _stored_config(run: Path, assignments: list[str]) -> RunConfig:
    if not (run / "config.toml").is_file():
        raise MissingInputError(f"{run} is not a run directory: it has no config.toml to go on from")
    return read_config(run / "config.toml", assignments).model_copy(update={"out": str(run)})


def _is_worth_keeping(path: Path) -> bool:
    return path.name not in BEFORE_CONFIG and DRAFT not in path.name


def _as_a_team(team: Team, events: Iterator[Event]) -> Iterator[Event]:
    """Pass a run's events on; the team ends with it, however it ends."""
    try:
        with team.working():
            yield from events
    finally:
        team.leave()


def _resume(
    config: RunConfig, examined: Any | None, team: Team, stop: Callable[[], bool]
) -> Generator[Event, None, None]:
    if team.tell(bool(all_steps(Path(config.out) / "checkpoints")) if team.leads else None):
        yield from _go_on(config, examined, team, stop)
    else:
        yield from _recorded(team, Path(config.out), _start(config, examined, team, stop))


def _start(
    config: RunConfig, examined: Any | None, team: Team, stop: Callable[[], bool]
) -> Generator[Event, None, None]:
    start = None
    with team.agreement():
        if team.leads:
            start = read_start(config)
    prepared = yield from prepare_together(team, config, examined, start.tokenizers if start else None)
    del examined  # Of many pairs, its hashes are many bytes.
    assembled = assemble(config, prepared, team, stop, start)
    del start
    yield from _introduced(assembled)
    with team.agreement():
        if team.leads:
            _describe(Path(config.out), assembled)
    yield from _finish(assembled, assembled.loop.run(TrainingState()))


def _introduced(assembled: Assembled) -> Iterator[Noted]:
    """What a person should know of a run before its first step."""
    if assembled.taken is not None:
        yield Noted(assembled.taken)
    yield from estimate(assembled.loop)


def _go_on(
    config: RunConfig, examined: Any | None, team: Team, stop: Callable[[], bool]
) -> Generator[Event, None, None]:
    run = Path(config.out)
    tokenizers = None
    with team.agreement():
        if team.leads:
            verify_description(run)
            tokenizers = TokenizerPair.load(run) if MODELS[config.model.kind].reads_text else None
    prepared = yield from prepare_together(team, config, examined, tokenizers)
    del examined
    assembled = assemble(config, prepared, team, stop)
    state, notes = assembled.checkpoints.restore()
    with team.agreement():
        if team.leads:
            # What was changed on the command line holds for the rest of the run, also after the next interruption.
            _write_config(run, assembled.config)
    for note in notes:
        yield Noted(note)
    yield from _recorded(team, run, _finish(assembled, assembled.loop.run(state)), state.step)


def _describe(run: Path, assembled: Assembled) -> None:
    """Write down what the run is, before its first step."""
    try:
        _write_config(run, assembled.config)
        describe_model(run, assembled.model.config, assembled.prepared.tokenizers, assembled.generation)
        seal_description(run)
    except OSError as error:
        raise storage_error(run, error) from error


def _write_config(run: Path, config: RunConfig) -> None:
    try:
        write_text(run / "config.toml", settings_for(run, config))
    except OSError as error:
        raise storage_error(run, error) from error


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
    sharing = share_out(Lesson(model, loss, OBJECTIVES[shape.kind], settings.precision), team, settings.sharding)
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
    return TASKS[kind].samples(model, prepared, str(team.device))


def _finish(assembled: Assembled, events: Iterator[Event]) -> Iterator[Event]:
    """Pass a loop's events on; before its last one, choose the weights to keep and write the model directory."""
    for event in events:
        if not isinstance(event, Finished):
            yield event
            continue
        yield from _choose_weights(assembled)
        path = Path(assembled.config.out) / "model"
        loss = assembled.loop.measure().loss
        tensors = model_tensors(assembled.model, assembled.team)
        with assembled.team.agreement():
            if assembled.team.leads:
                save_model(
                    path,
                    assembled.model,
                    assembled.prepared.tokenizers,
                    generation=assembled.generation,
                    card=model_card(assembled.config, assembled.model, event, loss, assembled.prepared.num_trained),
                    training_config=settings_for(path, assembled.config),
                    tensors=tensors,
                )
        yield dataclasses.replace(event, model_dir=path)


def _choose_weights(assembled: Assembled) -> Iterator[Noted]:
    """Leave in the model the best of: the best checkpoint, and the average if one was asked for."""
    team = assembled.team
    candidates: dict[str, list[Path]] = {}
    if team.leads:
        candidates = _candidates(assembled)
    names = team.tell(list(candidates))
    measured = {}
    for name in names:
        _take_weights(assembled, candidates.get(name, []))
        measured[name] = assembled.loop.measure().loss if len(names) > 1 else 0.0
    winner = min(measured, key=lambda name: measured[name])
    if len(names) > 1:
        yield Noted("; ".join(f"{name}: loss {loss:.4f}" for name, loss in measured.items()) + f"; kept {winner}")
    if winner != names[-1]:
        _take_weights(assembled, candidates.get(winner, []))


def _take_weights(assembled: Assembled, paths: list[Path]) -> None:
    """Put the mean of checkpoints into the model; the leader knows of which."""
    weights: dict[str, Tensor] = {}
    with assembled.team.agreement():
        if assembled.team.leads:
            weights = average(read_tensors(path / "model.safetensors") for path in paths)
    restore_model(assembled.model, weights, assembled.checkpoints.directory, assembled.team)


def _candidates(assembled: Assembled) -> dict[str, list[Path]]:
    """What the final weights may be made of."""
    settings, directory = assembled.config.train, assembled.checkpoints.directory
    newest, ranked = (list(filter(is_whole, paths)) for paths in (all_steps(directory), best_first(directory)))
    candidates = {"the best checkpoint": ranked[:1]} if ranked else {"the last checkpoint": newest[-1:]}
    chosen = newest[-settings.average :] if settings.average_of == "last" else ranked[: settings.average]
    if settings.average > 1 and len(chosen) > 1:
        candidates[f"the average of the {settings.average_of} {len(chosen)}"] = chosen
    return candidates


def _recorded(team: Team, run: Path, events: Iterator[Event], resumed_at: int = 0) -> Iterator[Event]:
    if not team.leads:
        yield from events
        return
    try:
        logbook = Logbook(run, resumed_at)
    except OSError as error:
        raise storage_error(run, error) from error
    for event in events:
        try:
            logbook.record(event)
        except OSError as error:
            raise storage_error(run, error) from error
        yield event
