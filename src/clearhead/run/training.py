"""A resolved configuration in, training events out, and at the end a model directory that is ready for use."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from clearhead.checkpoint import (
    Checkpoints,
    all_steps,
    best_first,
    describe_model,
    is_whole,
    read_tensors,
    restore_model,
    save_model,
    seal_description,
    verify_description,
)
from clearhead.config import to_toml
from clearhead.data.batches import Batches, fixed_batches
from clearhead.errors import MissingInputError, WouldOverwriteError
from clearhead.generate.settings import GenerationConfig
from clearhead.models import MODELS
from clearhead.models.translator import Translator
from clearhead.run.card import model_card
from clearhead.run.preparing import Examined, Prepared, examine, prepare
from clearhead.run.settings import RunConfig, read_config
from clearhead.run.using import LoadedTranslator, pick_device
from clearhead.storage import DRAFT, storage_error, write_text
from clearhead.text.specials import PAD_ID
from clearhead.text.tokenizer import TokenizerPair
from clearhead.training.allocator import keep_memory
from clearhead.training.averaging import average
from clearhead.training.estimate import estimate
from clearhead.training.events import Event, Finished, Noted, Sample
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


def train(
    config: RunConfig,
    *,
    examined: Examined | None = None,
    device: str = "auto",
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Event]:
    """Train from the start; the events say how it goes."""
    run = Path(config.out)
    if run.exists() and (not run.is_dir() or any(map(_is_worth_keeping, run.iterdir()))):
        raise WouldOverwriteError(f"{run} is not empty: go on with --resume, or choose another --out")
    pick_device(device)
    return _recorded(run, _train(config, examined or examine(config), device, stop))


def rehearse(config: RunConfig, *, examined: Examined | None = None, device: str = "auto") -> Iterator[Noted]:
    """All that training would do before its first step: data report, sizes, estimate; nothing is written."""
    prepared = yield from prepare(config, examined or examine(config))
    yield from estimate(assemble(config, prepared, device).loop)


def resume(
    run: Path, assignments: list[str], *, device: str = "auto", stop: Callable[[], bool] = lambda: False
) -> Iterator[Event]:
    """Go on exactly where the last checkpoint of a run stands."""
    if not (run / "config.toml").is_file():
        raise MissingInputError(f"{run} is not a run directory: it has no config.toml to go on from")
    config = read_config(run / "config.toml", assignments).model_copy(update={"out": str(run)})
    pick_device(device)
    return _resume(config, examine(config), device, stop)


def _is_worth_keeping(path: Path) -> bool:
    return path.name not in BEFORE_CONFIG and DRAFT not in path.name


def _train(
    config: RunConfig, examined: Examined, device: str, stop: Callable[[], bool]
) -> Generator[Event, None, None]:
    prepared = yield from prepare(config, examined)
    assembled = assemble(config, prepared, device, stop)
    yield from estimate(assembled.loop)
    run = Path(config.out)
    try:
        _write_config(run, assembled.config)
        describe_model(run, assembled.model.config, prepared.tokenizers, config.generation.model_dump())
        seal_description(run)
    except OSError as error:
        raise storage_error(run, error) from error
    yield from _finish(assembled, assembled.loop.run(TrainingState()))


def _resume(
    config: RunConfig, examined: Examined, device: str, stop: Callable[[], bool]
) -> Generator[Event, None, None]:
    run = Path(config.out)
    if not all_steps(run / "checkpoints"):
        yield from _recorded(run, _train(config, examined, device, stop))
        return
    verify_description(run)
    prepared = yield from prepare(config, examined, TokenizerPair.load(run))
    assembled = assemble(config, prepared, device, stop)
    state, notes = assembled.checkpoints.restore()
    # What was changed on the command line holds for the rest of the run, also after the next interruption.
    _write_config(run, assembled.config)
    for note in notes:
        yield Noted(note)
    yield from _recorded(run, _finish(assembled, assembled.loop.run(state)), state.step)


def _write_config(run: Path, config: RunConfig) -> None:
    try:
        write_text(run / "config.toml", to_toml(config))
    except OSError as error:
        raise storage_error(run, error) from error


def assemble(config: RunConfig, prepared: Prepared, device: str, stop: Callable[[], bool] = lambda: False) -> Assembled:
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
    torch.manual_seed(settings.seed)
    model = MODELS[shape.kind](shape).to(pick_device(device))
    optimizer = OPTIMIZERS[settings.optimizer](
        model, betas=(settings.beta1, settings.beta2), eps=settings.eps, weight_decay=settings.weight_decay
    )
    checkpoints = Checkpoints(
        Path(config.out), model, optimizer, keep_last=settings.keep_last, keep_best=settings.keep_best
    )
    loop = Loop(
        model=model,
        optimizer=optimizer,
        loss=LOSSES[settings.loss](settings.smoothing, PAD_ID),
        objective=OBJECTIVES[shape.kind],
        batches=Batches(prepared.training, config.batches, settings.seed),
        config=settings,
        validation=lambda: fixed_batches(prepared.validation, config.batches),
        samples=lambda: _samples(model, prepared, device),
        keeper=checkpoints,
        dim=shape.dim,
        stop=stop,
    )
    return Assembled(config, prepared, model, loop, checkpoints)


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
        save_model(
            path,
            assembled.model,
            assembled.prepared.tokenizers,
            generation=assembled.config.generation.model_dump(),
            card=model_card(assembled.config, assembled.model, event, loss, len(assembled.prepared.training)),
            training_config=to_toml(assembled.config),
        )
        yield dataclasses.replace(event, model_dir=path)


def _choose_weights(assembled: Assembled) -> Iterator[Noted]:
    """Leave in the model the best of: the best checkpoint, and the average if one was asked for."""
    settings, directory, loop = assembled.config.train, assembled.checkpoints.directory, assembled.loop
    newest, ranked = (list(filter(is_whole, paths)) for paths in (all_steps(directory), best_first(directory)))
    candidates = {"the best checkpoint": ranked[:1]} if ranked else {"the last checkpoint": newest[-1:]}
    chosen = newest[-settings.average :] if settings.average_of == "last" else ranked[: settings.average]
    if settings.average > 1 and len(chosen) > 1:
        candidates[f"the average of the {settings.average_of} {len(chosen)}"] = chosen
    measured: dict[str, float] = {}
    weights = {}
    for name, paths in candidates.items():
        weights[name] = average(read_tensors(path / "model.safetensors") for path in paths)
        restore_model(assembled.model, weights[name], directory)
        measured[name], _ = loop.measure() if len(candidates) > 1 else (0.0, 0.0)
    winner = min(measured, key=lambda name: measured[name])
    if len(candidates) > 1:
        yield Noted("; ".join(f"{name}: loss {loss:.4f}" for name, loss in measured.items()) + f"; kept {winner}")
    restore_model(assembled.model, weights[winner], directory)


def _recorded(run: Path, events: Iterator[Event], resumed_at: int = 0) -> Iterator[Event]:
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
