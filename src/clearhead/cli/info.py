"""`clearhead info`: a model or run directory in, what it is out; torch is not loaded for it."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from clearhead.errors import MissingInputError, StorageError

SHOWN = (
    "kind", "source_vocab_size", "target_vocab_size", "dim", "ff_dim", "num_heads", "num_kv_heads", "encoder_layers",
    "decoder_layers", "norm", "residual", "feedforward", "positions", "tie", "max_len",
)  # fmt: skip


def info(directory: Path, /, *, as_json: Annotated[bool, Parameter(name="--json", negative=())] = False) -> None:
    """Say what a model or run directory holds.

    Parameters
    ----------
    directory
        A model directory, a run directory, or one of its checkpoints.
    as_json
        As one JSON object.
    """
    facts = describe(directory)
    if as_json:
        sys.stdout.write(json.dumps(facts, ensure_ascii=False) + "\n")
        return
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        sys.stdout.write(f"{name.replace('_', ' '):<{width}}  {value}\n")


def describe(directory: Path) -> dict[str, Any]:
    """What can be read off a directory without loading its weights."""
    if not directory.is_dir():
        raise MissingInputError(f"there is no directory {directory}")
    home = directory / "model" if (directory / "model").is_dir() else directory
    weights = home / "model.safetensors"
    if not weights.is_file():
        best = [directory / "checkpoints" / name for name in ("best", "last")]
        weights = next((path / "model.safetensors" for path in best if path.exists()), weights)
    if directory.parent.name == "checkpoints":
        home = directory.parent.parent
    try:
        config = json.loads((home / "config.json").read_text(encoding="utf-8"))
        tokenizer = json.loads((home / "tokenizer_config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingInputError(f"{directory} is neither a model nor a run directory: it has no config.json") from None
    except ValueError as error:
        raise StorageError(f"{home}: damaged: {error}") from None
    facts: dict[str, Any] = {"path": str(directory), "format_version": config.get("format_version")}
    facts |= {name: config[name] for name in SHOWN if config.get(name) is not None}
    facts["tokenizer"] = tokenizer.get("kind")
    if weights.is_file():
        facts |= {"parameters": count_parameters(weights), "weights_bytes": weights.stat().st_size}
    return facts | _progress(directory)


def _progress(run: Path) -> dict[str, Any]:
    """What the newest checkpoint of a run says."""
    state = run / "checkpoints" / "last" / "state.json"
    if not state.is_file():
        return {}
    known = json.loads(state.read_text(encoding="utf-8"))
    return {name: known.get(name) for name in ("step", "best_step", "best_loss", "seconds")}


def count_parameters(weights: Path) -> int:
    """Numbers in a safetensors file, from its header alone."""
    try:
        with weights.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(length, 100_000_000)))
    except (struct.error, ValueError):
        raise StorageError(f"{weights} is not a safetensors file") from None
    total = 0
    for name, entry in header.items():
        if name != "__metadata__":
            size = 1
            for axis in entry["shape"]:
                size *= axis
            total += size
    return total
