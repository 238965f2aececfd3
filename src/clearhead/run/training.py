"""A resolved configuration in, training events out, and at the end a model directory that is ready for use."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from clearhead.checkpoint import (
    Checkpoints,
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
from clearhead.config import to_toml
from clearhead.data.batches import Batches, fixed_parts
from clearhead.errors import MissingInputError, WouldOverwriteError
from clearhead.generate.settings import GenerationConfig
from clearhead.models import MODELS
from clearhead.models.translator import Translator
from clearhead.run.card import model_card
from clearhead.run.preparing import Examined, Prepared, examine, prepare
from clearhead.run.settings import RunConfig, read_config
from clearhead.run.together import BEGUN, agree_on, continues, examine_together, join, prepare_together
from clearhead.run.using import LoadedTranslator, pick_device
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
from clearhead.training.optimizers import OPTIMIZERS

SHOWN = 3
"""How many validation examples a person is shown."""
BEFORE_CONFIG = ("metrics.jsonl", "train.log")
"""What a run writes before its config.toml: alone, they are left from a start that failed, and nothing is lost."""


@dataclass(frozen=True, eq=False)
class Assembled:
    """A run that is ready to start."""

    config: RunConfig
    prepared: Prepared
    model: Translator
    loop: Loop
    checkpoints: Checkpoints

    @property
    def team(self) -> Team:
        return self.loop.team


def train(
    config: RunConfig,
    *,
    examined: Examined | None = None,
    device: str = "auto",
    stop: Callable[[], bool] = lambda: False,
    team: Team | None = None,
    progress: Callable[[Reading], None] | None = None,
) -> Iterator[Event]:
    """Train from the start, or on from the last checkpoint if torchrun had to start again; the events say how it goes.

    Under torchrun each process makes this call; `team` is given by those that have met already. `progress` hears of
    the reading before the first event.
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
    examined: Examined | None = None,
    device: str = "auto",
    progress: Callable[[Reading], None] | None = None,
) -> Iterator[Noted | Reading]:
    """All that training would do before its first step: data report, sizes, estimate; nothing is written."""
    prepared = yield from prepare(config, examined or examine(config, progress))
    yield from estimate(assemble(config, prepared, Team(device=pick_device(device))).loop)


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
    config: RunConfig, examined: Examined | None, team: Team, stop: Callable[[], bool]
) -> Generator[Event, None, None]:
    if team.tell(bool(all_steps(Path(config.out) / "checkpoints")) if team.leads else None):
        yield from _go_on(config, examined, team, stop)
    else:
        yield from _recorded(team, Path(config.out), _start(config, examined, team, stop))


def _start(
    config: RunConfig, examined: Examined | None, team: Team, stop: Callable[[], bool]
) -> Generator[Event, None, None]:
    prepared = yield from prepare_together(team, config, examined)
    del examined  # Of many pairs, its hashes are many bytes.
    assembled = assemble(config, prepared, team, stop)
    yield from estimate(assembled.loop)
    with team.agreement():
        if team.leads:
            _describe(Path(config.out), assembled)
    yield from _finish(assembled, assembled.loop.run(TrainingState()))


def _go_on(
    config: RunConfig, examined: Examined | None, team: Team, stop: Callable[[], bool]
) -> Generator[Event, None, None]:
    run = Path(config.out)
    tokenizers = None
    with team.agreement():
        if team.leads:
            verify_description(run)
            tokenizers = TokenizerPair.load(run)
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
        generation = assembled.config.generation.model_dump()
        describe_model(run, assembled.model.config, assembled.prepared.tokenizers, generation)
        seal_description(run)
    except OSError as error:
        raise storage_error(run, error) from error


def _write_config(run: Path, config: RunConfig) -> None:
    try:
        write_text(run / "config.toml", to_toml(config))
    except OSError as error:
        raise storage_error(run, error) from error


def assemble(
    config: RunConfig, prepared: Prepared, team: Team = SOLO, stop: Callable[[], bool] = lambda: False
) -> Assembled:
    """Build model, optimizer, batches and checkpoints for a run; the seed fixes every initial weight."""
    shape = config.model.model_copy(
        update={
            "source_vocab_size": prepared.tokenizers.source.vocab_size,
            "target_vocab_size": prepared.tokenizers.target.vocab_size,
        }
    )
    config = config.model_copy(update={"model": shape})
    keep_memory()
    settings = config.train
    with team.agreement():
        torch.manual_seed(settings.seed)
        model = MODELS[shape.kind](shape).to(team.device)
    loss = LOSSES[settings.loss](settings.smoothing, PAD_ID, agreement=settings.agreement)
    sharing = share_out(Lesson(model, loss, OBJECTIVES[shape.kind], settings.precision), team, settings.sharding)
    optimizer = OPTIMIZERS[settings.optimizer](
        model, betas=(settings.beta1, settings.beta2), eps=settings.eps, weight_decay=settings.weight_decay, team=team
    )
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
    )
    return Assembled(config, prepared, model, loop, checkpoints)


def _leaders_samples(model: Translator, prepared: Prepared, team: Team, is_sharded: bool) -> tuple[Sample, ...]:
    """Samples for people, who look over the leader's shoulder; of a model in shards it is lent a whole one."""
    tensors = model_tensors(model, team) if is_sharded else {}
    if not team.leads:
        return ()
    if is_sharded:
        model = MODELS[model.config.kind](model.config)
        restore_model(model, tensors, Path())
    return _samples(model, prepared, str(team.device))


def _samples(model: Translator, prepared: Prepared, device: str) -> tuple[Sample, ...]:
    """A few validation pairs beside what the model makes of them."""
    shown = range(0, len(prepared.validation), max(1, len(prepared.validation) // SHOWN))[:SHOWN]
    tokenizers = prepared.tokenizers
    translator = LoadedTranslator(model, tokenizers, GenerationConfig(strategy="greedy"), device)
    sources = [prepared.validation.source(index).tolist() for index in shown]
    found = translator.search(sources, translator.generation)
    return tuple(
        Sample(
            tokenizers.source.decode(source),
            tokenizers.target.decode(prepared.validation.target(index).tolist()),
            tokenizers.target.decode(hypotheses[0].ids),
        )
        for source, index, hypotheses in zip(sources, shown, found, strict=True)
    )


def _finish(assembled: Assembled, events: Iterator[Event]) -> Iterator[Event]:
    """Pass a loop's events on; before its last one, choose the weights to keep and write the model directory."""
    for event in events:
        if not isinstance(event, Finished):
            yield event
            continue
        yield from _choose_weights(assembled)
        path = Path(assembled.config.out) / "model"
        loss, _ = assembled.loop.measure()
        tensors = model_tensors(assembled.model, assembled.team)
        with assembled.team.agreement():
            if assembled.team.leads:
                save_model(
                    path,
                    assembled.model,
                    assembled.prepared.tokenizers,
                    generation=assembled.config.generation.model_dump(),
                    card=model_card(assembled.config, assembled.model, event, loss, assembled.prepared.num_trained),
                    training_config=to_toml(assembled.config),
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
        measured[name], _ = assembled.loop.measure() if len(names) > 1 else (0.0, 0.0)
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
