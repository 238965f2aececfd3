"""A model, its tokenizers and its progress ↔ one directory; a kill at any moment leaves the last good one whole.

A checkpoint does not know how many processes made it: its tensors are whole, and any number may go on from it.
Load once, safely: sums, schema, tensors, shapes. Tensors are safetensors, the rest is JSON or TOML; nothing is ever
pickled, and class names come from our tables, never from a file.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from clearhead.config import build
from clearhead.data.batches import Cursor
from clearhead.errors import DataError, MissingInputError, StorageError, choose
from clearhead.models import MODELS, Model, ModelConfig
from clearhead.storage import (
    DRAFT,
    RETIRED,
    SUMS,
    check_listed,
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
from clearhead.training.distributed import SOLO, Team, whole
from clearhead.training.loop import TrainingState
from clearhead.training.optimizers import Optimizer, restore_tensors, state_tensors

FORMAT_VERSION = 1
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
MEMORIES = {
    str(dtype): dtype
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8)
}
"""What an optimizer may remember in."""
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""In which number formats weights may be stored; a loaded model computes in float32."""
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


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Weights and running statistics by name; a tied table comes once, under its first name."""
    persistent = set(model.state_dict())
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in persistent}
    return {**dict(model.named_parameters()), **buffers}


def model_tensors(model: nn.Module, team: Team = SOLO) -> dict[str, Tensor]:
    """What is stored of a model, whole; in a team all must ask, and the leader is given it."""
    return gathered(named_tensors(model), team)


def gathered(tensors: Mapping[str, Tensor], team: Team) -> dict[str, Tensor]:
    """Tensors in whole, on the CPU, one at a time; those who do not lead help, and keep none."""
    return {name: full for name, tensor in tensors.items() if (full := _on_cpu(tensor, team)) is not None}


def _on_cpu(tensor: Tensor, team: Team) -> Tensor | None:
    full = whole(tensor.detach())
    return full.cpu().contiguous() if team.leads else None


def stored_as(tensors: Mapping[str, Tensor], dtype: str) -> dict[str, Tensor]:
    """Weights in the number format they are to be stored in, or an error if one of them is too large for it."""
    wanted = choose(DTYPES, dtype, "number format")
    cast = {name: tensor.to(wanted) if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    for name, tensor in cast.items():
        if tensor.is_floating_point() and not torch.equal(tensor.isfinite(), tensors[name].isfinite()):
            raise DataError(f"the weights do not fit into {dtype}: {name} has values that are too large; use bfloat16")
    return cast


def restore_model(model: nn.Module, tensors: Mapping[str, Tensor], where: Path, team: Team = SOLO) -> None:
    """Put stored weights into a model of the same shape, or name what differs; in a team, the leader's count."""
    expected = named_tensors(model)
    with team.agreement():
        if team.leads:
            _check_fit(expected, tensors, where)
    with torch.no_grad():
        for name, tensor in expected.items():
            team.fill(tensor, tensors.get(name))


def _check_fit(expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor], where: Path) -> None:
    missing, unknown = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    wrong = [name for name in expected.keys() & tensors.keys() if expected[name].shape != tensors[name].shape]
    if missing or unknown or wrong:
        first = (missing or unknown or sorted(wrong))[0]
        raise StorageError(
            f"{where} does not fit this model: {len(missing)} tensors missing, {len(unknown)} unknown, "
            f"{len(wrong)} of another shape (first: {first})"
        )


@dataclass(frozen=True)
class StoredModel:
    """What a model directory holds."""

    model: Model
    tokenizers: TokenizerPair | None
    """One of both sides where there is only one; None where no text is read."""
    generation: dict[str, Any] | None
    """None where no text is written."""
    path: Path

    @property
    def kind(self) -> str:
        """The model's name in MODELS."""
        return self.model.config.kind


def save_model(
    directory: Path,
    model: Model,
    tokenizers: TokenizerPair | None,
    *,
    generation: Mapping[str, Any] | None,
    card: str,
    training_config: str,
    tensors: Mapping[str, Tensor] | None = None,
    dtype: str = "float32",
) -> None:
    """Write a model directory that loads everywhere; half precision (float16) halves its size.

    `tensors` are its weights where the model itself has only a part.
    """
    weights = stored_as(model_tensors(model) if tensors is None else tensors, dtype)

    def fill(draft: Path) -> None:
        describe_model(draft, model.config, tokenizers, generation, dtype)
        write_tensors(draft / "model.safetensors", weights)
        (draft / "README.md").write_text(card, encoding="utf-8")
        (draft / "training_config.toml").write_text(training_config, encoding="utf-8")

    write_directory(directory, fill)


def rewrite_card(directory: Path, card: str) -> None:
    """Give a model directory another README.md and leave the rest as it is, its sums included."""
    _verified(directory, "model.safetensors")

    def fill(draft: Path) -> None:
        for path in directory.iterdir():
            if path.name not in (SUMS, "README.md"):
                shutil.copy(path, draft)
        (draft / "README.md").write_text(card, encoding="utf-8")

    write_directory(directory, fill)


def describe_model(
    directory: Path,
    config: ModelConfig,
    tokenizers: TokenizerPair | None,
    generation: Mapping[str, Any] | None,
    dtype: str = "float32",
) -> None:
    """Write what is known of a model apart from its weights."""
    tree = {"format_version": FORMAT_VERSION, "dtype": dtype, **config.model_dump()}
    write_json(directory / "config.json", tree)
    if generation is not None:
        write_json(directory / "generation_config.json", generation)
    if tokenizers is not None:
        tokenizers.save(directory)


def seal_description(run: Path) -> None:
    """Write the sums of what `describe_model` wrote into a run directory."""
    write_sums(run, [run / "config.json", *run.glob("generation_config.json"), *run.glob("*tokenizer*.json")])


def verify_description(run: Path) -> None:
    """Check what `seal_description` has sealed."""
    if (run / SUMS).is_file():
        _verified(run)


def _verified(directory: Path, *needed: str) -> None:
    """Check a directory that describes a model: nothing in it may be damaged, and what its kind needs must be there."""
    listed = verify(directory, "config.json", *needed)
    kind, _ = _description(directory)
    text = ("tokenizer.json", "tokenizer_config.json") if kind.reads_text else ()
    check_listed(directory, listed, (*(("generation_config.json",) if kind.generates else ()), *text))


def _description(directory: Path) -> tuple[type[Model], dict[str, Any]]:
    """Which kind of model a directory describes, and the rest of what its config.json says."""
    tree = read_json(directory / "config.json")
    version = tree.pop("format_version", None)
    if version != FORMAT_VERSION:
        raise StorageError(f"{directory} has format {version}, this is format {FORMAT_VERSION}: use a matching version")
    return choose(MODELS, str(tree.get("kind")), "model"), tree


def load_model(path: Path) -> StoredModel:
    """Read a model directory, or the best model of a run directory."""
    described, weights = locate(path)
    if described == weights:
        _verified(weights, "model.safetensors")
    else:
        verify(weights, "model.safetensors")
        verify_description(described)
    kind, tree = _description(described)
    dtype = choose(DTYPES, str(tree.pop("dtype", "float32")), "number format")
    model = kind(build(kind.Config, tree, str(described / "config.json")))
    tensors = read_tensors(weights / "model.safetensors")
    other = [name for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.dtype != dtype]
    if other:
        raise StorageError(
            f"{weights / 'model.safetensors'} is not in the number format its config.json names: "
            f"{other[0]} is {tensors[other[0]].dtype}, not {dtype}"
        )
    restore_model(model, tensors, weights / "model.safetensors")
    generation = read_json(described / "generation_config.json") if kind.generates else None
    tokenizers = TokenizerPair.load(described) if kind.reads_text else None
    return StoredModel(model.eval(), tokenizers, generation, path)


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

    def save(self, state: TrainingState, validation_loss: float | None) -> Path:
        """Write a checkpoint, move the links, then let old ones go."""
        final = self.directory / f"step-{state.step}"
        weights = model_tensors(self.model, self.team)
        memories = gathered(state_tensors(self.optimizer, self.model), self.team)
        with self.team.agreement():
            if self.team.leads:
                self._write(final, state, validation_loss, weights, memories)
        return final

    def _write(
        self,
        final: Path,
        state: TrainingState,
        validation_loss: float | None,
        weights: Mapping[str, Tensor],
        memories: Mapping[str, Tensor],
    ) -> None:
        def fill(draft: Path) -> None:
            write_tensors(draft / "model.safetensors", weights)
            write_tensors(draft / "optimizer.safetensors", memories)
            write_json(draft / "state.json", {**asdict(state), "validation_loss": validation_loss})

        write_directory(final, fill)
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
                _check_fit(named_tensors(self.model), read.weights, read.path / "model.safetensors")
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
    """How far training had come, the weights, and what the optimizer remembers."""
    verify(path, *CHECKPOINT)
    tree = read_json(path / "state.json")
    tree.pop("validation_loss", None)
    try:
        state = TrainingState(**{**tree, "cursor": Cursor(**tree["cursor"])})
    except (TypeError, KeyError):
        raise StorageError(f"{path / 'state.json'} is not the state of a run of this version") from None
    return state, read_tensors(path / "model.safetensors"), read_tensors(path / "optimizer.safetensors")
