"""A model, its tokenizers and its progress ↔ one directory; a kill at any moment leaves the last good one whole.

Load once, safely: sums, schema, tensors, shapes. Tensors are safetensors, the rest is JSON or TOML; nothing is ever
pickled, and class names come from our tables, never from a file.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from clearhead.config import Record, build
from clearhead.data.batches import Cursor
from clearhead.errors import DataError, MissingInputError, StorageError, choose
from clearhead.models import MODELS
from clearhead.models.translator import Translator
from clearhead.storage import (
    DRAFT,
    RETIRED,
    SUMS,
    read_json,
    remove,
    retire,
    storage_error,
    sync,
    verify,
    write_directory,
    write_json,
    write_sums,
)
from clearhead.text.tokenizer import TokenizerPair
from clearhead.training.loop import TrainingState
from clearhead.training.optimizers import Optimizer, restore_tensors, state_tensors

FORMAT_VERSION = 1
RANDOM_STATE = "random_state"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
DESCRIPTION = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
CHECKPOINT = ("model.safetensors", "optimizer.safetensors", "state.json")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file."""
    try:
        return load_file(path)
    except FileNotFoundError:
        raise MissingInputError(f"there is no {path}") from None
    except (SafetensorError, OSError) as error:
        raise StorageError(f"{path} cannot be read: {error}") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file, with notes in its header, that may be read by whoever may read its neighbours."""
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(dict(tensors), path, metadata={"format": "pt", **(notes or {})})
    except SafetensorError as error:
        # A full disk is an I/O error like any other, but comes as text: "… (os error 28)".
        number = re.search(r"(?:os error|code:) (\d+)", str(error))
        raise OSError(*((int(number[1]), os.strerror(int(number[1]))) if number else (str(error),))) from None
    # It is written under another name, readable by its owner only, and then renamed.
    path.chmod(mode)


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Weights and running statistics by name; a tied table is stored once, under its first name."""
    stored = dict(model.named_parameters())
    persistent = set(model.state_dict())
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in persistent}
    return {name: tensor.detach().cpu().contiguous() for name, tensor in (stored | buffers).items()}


def restore_model(model: nn.Module, tensors: Mapping[str, Tensor], where: Path) -> None:
    """Put stored weights into a model of the same shape, or name what differs."""
    expected = model_tensors(model)
    missing, unknown = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    wrong = [name for name in expected.keys() & tensors.keys() if expected[name].shape != tensors[name].shape]
    if missing or unknown or wrong:
        first = (missing or unknown or sorted(wrong))[0]
        raise StorageError(
            f"{where} does not fit this model: {len(missing)} tensors missing, {len(unknown)} unknown, "
            f"{len(wrong)} of another shape (first: {first})"
        )
    model.load_state_dict(dict(tensors), strict=False)


@dataclass(frozen=True)
class StoredModel:
    """What a model directory holds."""

    model: Translator
    tokenizers: TokenizerPair
    generation: dict[str, Any]
    path: Path


def save_model(
    directory: Path,
    model: Translator,
    tokenizers: TokenizerPair,
    *,
    generation: Mapping[str, Any],
    card: str,
    training_config: str,
) -> None:
    """Write a model directory that loads everywhere."""

    def fill(draft: Path) -> None:
        describe_model(draft, model.config, tokenizers, generation)
        write_tensors(draft / "model.safetensors", model_tensors(model))
        (draft / "README.md").write_text(card, encoding="utf-8")
        (draft / "training_config.toml").write_text(training_config, encoding="utf-8")

    write_directory(directory, fill)


def describe_model(directory: Path, config: Record, tokenizers: TokenizerPair, generation: Mapping[str, Any]) -> None:
    """Write what is known of a model apart from its weights."""
    write_json(directory / "config.json", {"format_version": FORMAT_VERSION, **config.model_dump()})
    write_json(directory / "generation_config.json", generation)
    tokenizers.save(directory)


def seal_description(run: Path) -> None:
    """Write the sums of what `describe_model` wrote into a run directory."""
    write_sums(run, [run / "config.json", run / "generation_config.json", *run.glob("*tokenizer*.json")])


def verify_description(run: Path) -> None:
    """Check what `seal_description` has sealed."""
    if (run / SUMS).is_file():
        verify(run, *DESCRIPTION)


def load_model(path: Path) -> StoredModel:
    """Read a model directory, or the best model of a run directory."""
    described, weights = locate(path)
    if described == weights:
        verify(weights, "model.safetensors", *DESCRIPTION)
    else:
        verify(weights, "model.safetensors")
        verify_description(described)
    tree = read_json(described / "config.json")
    version = tree.pop("format_version", None)
    if version != FORMAT_VERSION:
        raise StorageError(f"{described} has format {version}, this is format {FORMAT_VERSION}: use a matching version")
    kind = choose(MODELS, str(tree.get("kind")), "model")
    model = kind(build(kind.Config, tree, str(described / "config.json")))
    restore_model(model, read_tensors(weights / "model.safetensors"), weights / "model.safetensors")
    generation = read_json(described / "generation_config.json")
    return StoredModel(model.eval(), TokenizerPair.load(described), generation, path)


def locate(path: Path) -> tuple[Path, Path]:
    """Where a model is described and where its weights are, for a model, run or checkpoint directory."""
    if not path.exists():
        raise MissingInputError(f"there is no model at {path}")
    if path.is_file() and path.suffix in PICKLES:
        raise DataError(f"{path} looks like a pickle, which can run code when read: convert it to safetensors first")
    if (path / "model.safetensors").is_file() and (path / "config.json").is_file():
        return path, path
    if (path / "model").is_dir():
        return path / "model", path / "model"
    for link in ("best", "last"):
        if (path / "checkpoints" / link).exists():
            return path, (path / "checkpoints" / link).resolve()
    if path.parent.name == "checkpoints" and (path / "model.safetensors").is_file():
        return path.parent.parent, path.resolve()
    raise MissingInputError(f"{path} is neither a model directory nor a run directory with a checkpoint")


class Checkpoints:
    """The checkpoints of a run: `step-N` directories, the links `last` and `best`, and nothing half-written."""

    def __init__(self, run: Path, model: nn.Module, optimizer: Optimizer, *, keep_last: int, keep_best: int) -> None:
        self.directory = run / "checkpoints"
        self.model, self.optimizer = model, optimizer
        self.keep_last, self.keep_best = keep_last, keep_best

    def save(self, state: TrainingState, validation_loss: float | None) -> Path:
        """Write a checkpoint, move the links, then let old ones go."""
        final = self.directory / f"step-{state.step}"

        def fill(draft: Path) -> None:
            write_tensors(draft / "model.safetensors", model_tensors(self.model))
            tensors = {name: tensor.cpu().contiguous() for name, tensor in self._optimizer_tensors().items()}
            write_tensors(draft / "optimizer.safetensors", tensors)
            write_json(draft / "state.json", {**asdict(state), "validation_loss": validation_loss})

        write_directory(final, fill)
        try:
            self._link("last", final)
            if state.best_step == state.step:
                self._link("best", final)
            self._purge()
        except OSError as error:
            raise storage_error(final, error) from error
        return final

    def restore(self) -> tuple[TrainingState, list[str]]:
        """Load the newest whole checkpoint into model and optimizer; damaged ones are put aside and named."""
        damaged: dict[Path, str] = {}
        for path in reversed(all_steps(self.directory)):
            try:
                state, weights, memories = _read_checkpoint(path)
            except (StorageError, MissingInputError) as error:
                damaged[path] = str(error)
                continue
            restore_model(self.model, weights, path / "model.safetensors")
            torch.set_rng_state(memories.pop(RANDOM_STATE))
            restore_tensors(self.optimizer, self.model, memories)
            self._put_right(state, damaged)
            return state, [f"{problem}; going back to the checkpoint before it" for problem in damaged.values()]
        if damaged:
            raise StorageError(f"no checkpoint in {self.directory} is whole: {next(iter(damaged.values()))}")
        raise MissingInputError(f"there is no checkpoint in {self.directory} to go on from")

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

    def _optimizer_tensors(self) -> dict[str, Tensor]:
        return {**state_tensors(self.optimizer, self.model), RANDOM_STATE: torch.get_rng_state()}

    def _link(self, name: str, final: Path) -> None:
        fresh = self.directory / f"{name}.tmp-{os.getpid()}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(final.name)
        fresh.replace(self.directory / name)
        sync(self.directory)

    def _purge(self) -> None:
        newest, best = all_steps(self.directory)[-self.keep_last :], best_first(self.directory)[: self.keep_best]
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
    """The checkpoints that were validated, lowest loss first."""
    losses = {path: _validation_loss(path) for path in all_steps(directory)}
    known = {path: loss for path, loss in losses.items() if loss is not None}
    return sorted(known, key=lambda path: known[path])


def _validation_loss(path: Path) -> float | None:
    # One damaged checkpoint must not keep the others from being kept.
    with contextlib.suppress(StorageError, MissingInputError, TypeError, ValueError):
        loss = read_json(path / "state.json").get("validation_loss")
        return None if loss is None else float(loss)
    return None


def is_whole(path: Path) -> bool:
    """Whether a checkpoint is just as it was written."""
    try:
        verify(path, *CHECKPOINT)
    except (StorageError, MissingInputError):
        return False
    return True


def _read_checkpoint(path: Path) -> tuple[TrainingState, dict[str, Tensor], dict[str, Tensor]]:
    """How far training had come, the weights, and what the optimizer remembers with the random state."""
    verify(path, *CHECKPOINT)
    tree = read_json(path / "state.json")
    tree.pop("validation_loss", None)
    try:
        state = TrainingState(**{**tree, "cursor": Cursor(**tree["cursor"])})
    except (TypeError, KeyError):
        raise StorageError(f"{path / 'state.json'} is not the state of a run of this version") from None
    return state, read_tensors(path / "model.safetensors"), read_tensors(path / "optimizer.safetensors")
