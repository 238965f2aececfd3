"""A resolved configuration in, training events out, and at the end a model directory that is ready for use."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from clearhead.checkpoint import (
    UNDER_WAY,
    all_steps,
    describe_model,
    described_model,
    seal_description,
    verify_description,
)
from clearhead.data.naming import read_settings
from clearhead.errors import MissingInputError, WouldOverwriteError
from clearhead.models import MODELS
from clearhead.run.alone import alone
from clearhead.run.assembling import Assembled, assemble
from clearhead.run.devices import pick_device
from clearhead.run.finishing import finish
from clearhead.run.recognising import recognise, remember
from clearhead.run.settings import RunConfig, build_config, check_lasting, read_config, settings_for
from clearhead.run.starting import read_start
from clearhead.run.tasks import TASKS
from clearhead.run.together import BEGUN, agree_on, continues, examine_together, join, prepare_together
from clearhead.storage import DRAFT, storage_error, write_text
from clearhead.text.tokenizer import TokenizerPair
from clearhead.training.distributed import Team
from clearhead.training.estimate import estimate
from clearhead.training.events import Event, Noted, Reading
from clearhead.training.logbook import Logbook
from clearhead.training.loop import TrainingState

BEFORE_CONFIG = (UNDER_WAY, "metrics.jsonl", "train.log")
"""What a run writes before its config.toml: alone, they are left from a start that failed, and nothing is lost."""


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
    return _as_a_team(team, run, _recorded(team, run, _start(config, examined, team, stop)))


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
    return _as_a_team(team, run, _resume(config, examined, team, stop))


def _stored_config(run: Path, assignments: list[str]) -> RunConfig:
    if not (run / "config.toml").is_file():
        raise MissingInputError(f"{run} is not a run directory: it has no config.toml to go on from")
    config = read_config(run / "config.toml", assignments).model_copy(update={"out": str(run)})
    if all_steps(run / "checkpoints"):
        verify_description(run)
        check_lasting(run, _begun_with(run), config)
    return config


def _begun_with(run: Path) -> RunConfig:
    """The settings that a run began with; of its model, those that its weights were made for."""
    stored = run / "config.toml"
    return build_config(read_settings(stored), str(stored)).model_copy(update={"model": described_model(run)})


def _is_worth_keeping(path: Path) -> bool:
    return path.name not in BEFORE_CONFIG and DRAFT not in path.name


def _as_a_team(team: Team, run: Path, events: Iterator[Event]) -> Iterator[Event]:
    """Pass a run's events on, with its directory to ourselves; the team ends with it, however it ends."""
    try:
        with team.working(), ExitStack() as held:
            with team.agreement():
                if team.leads:
                    held.enter_context(alone(run))
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
    yield from finish(assembled, assembled.loop.run(TrainingState()))


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
            tokenizers = TokenizerPair.load(run) if MODELS[config.model.kind].reads_text else None
    prepared = yield from prepare_together(team, config, examined, tokenizers)
    del examined
    assembled = assemble(config, prepared, team, stop)
    with team.agreement():
        if team.leads:
            # Again, with what was filled in from the data, which may be others by now.
            check_lasting(run, _begun_with(run), assembled.config)
            recognise(run, prepared)
    state, notes = assembled.checkpoints.restore()
    with team.agreement():
        if team.leads:
            # What was changed on the command line holds for the rest of the run, also after the next interruption.
            _write_config(run, assembled.config)
    for note in notes:
        yield Noted(note)
    yield from _recorded(team, run, finish(assembled, assembled.loop.run(state)), state.step)


def _describe(run: Path, assembled: Assembled) -> None:
    """Write down what the run is, before its first step."""
    try:
        _write_config(run, assembled.config)
        describe_model(run, assembled.model.config, assembled.prepared.tokenizers, assembled.generation)
        seal_description(run)
        remember(run, assembled.prepared)
    except OSError as error:
        raise storage_error(run, error) from error


def _write_config(run: Path, config: RunConfig) -> None:
    try:
        write_text(run / "config.toml", settings_for(run, config))
    except OSError as error:
        raise storage_error(run, error) from error


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
