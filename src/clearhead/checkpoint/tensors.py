"""A model's tensors ↔ safetensors files: whole, by name, and only into a model that they fit."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from clearhead.errors import MissingInputError, StorageError
from clearhead.training.distributed import SOLO, Team, whole


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


def restore_model(model: nn.Module, tensors: Mapping[str, Tensor], where: Path, team: Team = SOLO) -> None:
    """Put stored weights into a model of the same shape, or name what differs; in a team, the leader's count."""
    expected = named_tensors(model)
    with team.agreement():
        if team.leads:
            check_fit(expected, tensors, where)
    with torch.no_grad():
        for name, tensor in expected.items():
            team.fill(tensor, tensors.get(name))


def check_fit(expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor], where: Path) -> None:
    """Refuse tensors that are not those of a model, and say in what they differ."""
    missing, unknown = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    wrong = [name for name in expected.keys() & tensors.keys() if expected[name].shape != tensors[name].shape]
    if missing or unknown or wrong:
        first = (missing or unknown or sorted(wrong))[0]
        raise StorageError(
            f"{where} does not fit this model: {len(missing)} tensors missing, {len(unknown)} unknown, "
            f"{len(wrong)} of another shape (first: {first})"
        )
