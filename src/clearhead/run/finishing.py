"""A run that has come to its end in, a model directory with the best of its weights out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from clearhead.checkpoint import (
    UNDER_WAY,
    all_steps,
    best_first,
    is_whole,
    model_tensors,
    read_tensors,
    restore_model,
    save_model,
)
from clearhead.run.assembling import Assembled
from clearhead.run.card import model_card
from clearhead.run.settings import settings_for
from clearhead.training.averaging import average
from clearhead.training.events import Event, Finished, Noted


def finish(assembled: Assembled, events: Iterator[Event]) -> Iterator[Event]:
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
                    replace=True,
                )
                (path.parent / UNDER_WAY).unlink(missing_ok=True)
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
    # A loss that is not a number is never the lowest.
    winner = min(measured, key=lambda name: measured[name] if math.isfinite(measured[name]) else math.inf)
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
