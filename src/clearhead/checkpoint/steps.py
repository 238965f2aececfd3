"""A run's progress ↔ its `checkpoints`: one directory a step; a kill at any moment leaves the last good one whole.

A checkpoint does not know how many processes made it: its tensors are whole, and any number may go on from it.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.checkpoint.tensors import (
    check_fit,
    gathered,
    model_tensors,
    named_tensors,
    read_tensors,
    restore_model,
    write_tensors,
)
from clearhead.data.batches import Cursor
from clearhead.errors import MissingInputError, StorageError
from clearhead.storage import (
    DRAFT,
    RETIRED,
    read_json,
    remove,
    retire,
    storage_error,
    sync,
    verify,
    write_directory,
    write_json,
)
from clearhead.training.distributed import SOLO, Team
from clearhead.training.loop import TrainingState
from clearhead.training.optimizers import Optimizer, restore_tensors, state_tensors

MEMORIES = {
    str(dtype): dtype
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8)
}
"""What an optimizer may remember in."""
CHECKPOINT = ("model.safetensors", "optimizer.safetensors", "state.json")


@dataclass(frozen=True)
class _Read:
    """A whole checkpoint, and what was wrong with those after it."""

    path: Path
    state: TrainingState
    weights: dict[str, Tensor]
    memories: dict[str, Tensor]
    damaged: dict[Path, str]


class Checkpoints:
    """The checkpoints of a run: `step-N` directories, the links `last` and `best`, and nothing half-written.

    Of a team, the leader alone reads and writes; what it reads, it passes on.
    """

    def __init__(
        self, run: Path, model: nn.Module, optimizer: Optimizer, *, keep_last: int, keep_best: int, team: Team = SOLO
    ) -> None:
        self.directory = run / "checkpoints"
        self.model, self.optimizer, self.team = model, optimizer, team
        self.keep_last, self.keep_best = keep_last, keep_best

    def save(self, state: TrainingState, validation_loss: float | None, *, is_planned: bool = True) -> Path:
        """Write a checkpoint, move the links, then let old ones go, and those of interruptions."""
        final = self.directory / f"step-{state.step}"
        weights = model_tensors(self.model, self.team)
        memories = gathered(state_tensors(self.optimizer, self.model), self.team)
        with self.team.agreement():
            if self.team.leads:
                notes = {"validation_loss": validation_loss, "is_planned": is_planned}
                self._write(final, state, notes, weights, memories)
        return final

    def _write(
        self,
        final: Path,
        state: TrainingState,
        notes: Mapping[str, Any],
        weights: Mapping[str, Tensor],
        memories: Mapping[str, Tensor],
    ) -> None:
        def fill(draft: Path) -> None:
            write_tensors(draft / "model.safetensors", weights)
            write_tensors(draft / "optimizer.safetensors", memories)
            write_json(draft / "state.json", {**asdict(state), **notes})

        write_directory(final, fill, replace=True)
        try:
            self._link("last", final)
            if state.best_step == state.step:
                self._link("best", final)
            self._purge()
        except OSError as error:
            raise storage_error(final, error) from error

    def restore(self) -> tuple[TrainingState, list[str]]:
        """Load the newest whole checkpoint into model and optimizer; damaged ones are put aside and named."""
        read: _Read | None = None
        with self.team.agreement():
            if self.team.leads:
                read = self._read()
                check_fit(named_tensors(self.model), read.weights, read.path / "model.safetensors")
                self._put_right(read.state, read.damaged)
        restore_model(self.model, read.weights if read else {}, self.directory, self.team)
        self._restore_optimizer(read.memories if read else {})
        notes = (
            [f"{problem}; going back to the checkpoint before it" for problem in read.damaged.values()] if read else []
        )
        tree = self.team.tell(asdict(read.state) if read else None)
        return TrainingState(**{**tree, "cursor": Cursor(**tree["cursor"])}), notes

    def _read(self) -> _Read:
        damaged: dict[Path, str] = {}
        for path in reversed(all_steps(self.directory)):
            try:
                return _Read(path, *_read_checkpoint(path), damaged)
            except (StorageError, MissingInputError) as error:
                damaged[path] = str(error)
        if damaged:
            raise StorageError(f"no checkpoint in {self.directory} is whole: {next(iter(damaged.values()))}")
        raise MissingInputError(f"there is no checkpoint in {self.directory} to go on from")

    def _restore_optimizer(self, memories: Mapping[str, Tensor]) -> None:
        listed = self.team.tell({name: [list(value.shape), str(value.dtype)] for name, value in memories.items()})
        weights = dict(self.model.named_parameters())
        spread = {
            name: self.team.spread(weights[name.rsplit("/", 1)[0]], memories.get(name), shape, MEMORIES[kind])
            for name, (shape, kind) in listed.items()
        }
        restore_tensors(self.optimizer, self.model, spread)

    def _put_right(self, state: TrainingState, damaged: Iterable[Path]) -> None:
        """Let damaged checkpoints no longer count, and the links be what they were at this state."""
        try:
            for path in damaged:
                aside = path.with_name(f"{path.name}.damaged")
                remove(aside)
                path.rename(aside)
            for name, step in (("last", state.step), ("best", state.best_step)):
                if (self.directory / f"step-{step}").is_dir():
                    self._link(name, self.directory / f"step-{step}")
                else:
                    (self.directory / name).unlink(missing_ok=True)
        except OSError as error:
            raise storage_error(self.directory, error) from error

    def _link(self, name: str, final: Path) -> None:
        fresh = self.directory / f"{name}{DRAFT}{os.getpid()}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(final.name)
        fresh.replace(self.directory / name)
        sync(self.directory)

    def _purge(self) -> None:
        *earlier, last = all_steps(self.directory)
        newest = [*filter(_is_planned, earlier), last][-self.keep_last :]
        best = best_first(self.directory)[: self.keep_best]
        worth_keeping = [*newest, *best, self.directory / "best"]
        kept = {path.resolve() for path in worth_keeping}
        for path in list(self.directory.iterdir()):
            is_checkpoint = path.name.removeprefix("step-").isdecimal()
            is_rubble = DRAFT in path.name or RETIRED in path.name
            if is_checkpoint and path.resolve() not in kept:
                remove(retire(path))
            elif is_rubble:
                remove(path)


def all_steps(directory: Path) -> list[Path]:
    """All complete checkpoints in a run's `checkpoints`, oldest first."""
    if not directory.is_dir():
        return []
    found = [path for path in directory.iterdir() if path.name.removeprefix("step-").isdecimal()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def best_first(directory: Path) -> list[Path]:
    """The checkpoints that were validated and gave a number, lowest loss first."""
    losses = {path: _validation_loss(path) for path in all_steps(directory)}
    known = {path: loss for path, loss in losses.items() if loss is not None}
    return sorted(known, key=lambda path: known[path])


def _validation_loss(path: Path) -> float | None:
    # One damaged checkpoint must not keep the others from being kept.
    with contextlib.suppress(StorageError, MissingInputError, KeyError, TypeError, ValueError):
        loss = float(read_json(path / "state.json")["validation_loss"])
        return loss if math.isfinite(loss) else None
    return None


def _is_planned(path: Path) -> bool:
    with contextlib.suppress(StorageError, MissingInputError):
        return bool(read_json(path / "state.json").get("is_planned", True))
    return True


def is_whole(path: Path) -> bool:
    """Whether a checkpoint is just as it was written."""
    try:
        verify(path, *CHECKPOINT)
    except (StorageError, MissingInputError):
        return False
    return True


def _read_checkpoint(path: Path) -> tuple[TrainingState, dict[str, Tensor], dict[str, Tensor]]:
    """How far training had come, the weights, and what the optimizer remembers."""
    verify(path, *CHECKPOINT)
    tree = read_json(path / "state.json")
    for note in ("validation_loss", "is_planned"):
        tree.pop(note, None)
    try:
        state = TrainingState(**{**tree, "cursor": Cursor(**tree["cursor"])})
    except (TypeError, KeyError):
        raise StorageError(f"{path / 'state.json'} is not the state of a run of this version") from None
    return state, read_tensors(path / "model.safetensors"), read_tensors(path / "optimizer.safetensors")
