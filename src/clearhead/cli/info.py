"""`clearhead info`: a model or run directory in, what it is out; torch is not loaded for it."""

from __future__ import annotations

import json
import math
import struct
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clearhead.cli import show
from clearhead.cli.flags import Json
from clearhead.errors import MissingInputError, StorageError
from clearhead.storage import SCALES, read_json

SHAPE = (
    "kind", "vocab_size", "source_vocab_size", "target_vocab_size", "dim", "ff_dim", "num_heads", "num_kv_heads",
    "num_layers", "encoder_layers", "decoder_layers", "norm", "residual", "feedforward", "positions", "tie", "tied",
    "pooling", "labels", "long_texts", "next_sentence", "fills_gaps", "height", "width", "channels", "patch", "max_len",
    "dtype",
)  # fmt: skip
DATA = ("kind", "dataset", "source_language", "target_language", "source", "target", "tsv", "text", "train", "pictures")
EXPORT = "export.json"
PARITY = ("logit_difference", "agreement", "identical")
PROGRESS = ("step", "best_step", "best_loss", "seconds")


def info(directory: Path, /, *, as_json: Json = False) -> None:
    """Say what a model or run directory holds.

    clearhead info runs/de-en

    Parameters
    ----------
    directory
        A model directory, a run directory, or one of its checkpoints.
    """
    facts = describe(directory)
    if as_json:
        show.data(json.dumps(facts, ensure_ascii=False))
        return
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        show.data(f"{name.replace('_', ' '):<{width}}  {_readable(name, value)}")


def describe(directory: Path) -> dict[str, Any]:
    """What can be read off a directory without loading its weights."""
    if not directory.is_dir():
        is_file = directory.exists()
        raise MissingInputError(
            f"{directory} is a file, not a model or run directory" if is_file else f"there is no directory {directory}"
        )
    if (directory / EXPORT).is_file():
        return _exported(directory)
    home, weights = _locate(directory)
    if not (home / "config.json").is_file():
        raise MissingInputError(f"{directory} is neither a model nor a run directory: it has no config.json")
    config, tokenizer = read_json(home / "config.json"), home / "tokenizer_config.json"
    if "format_version" not in config:
        raise MissingInputError(
            f"{directory} is not a model of Clearhead's: its config.json names no format_version; "
            "what is stored as Hugging Face does it, clearhead import reads"
        )
    facts: dict[str, Any] = {"path": str(directory), "format_version": config["format_version"]}
    facts |= {name: config[name] for name in SHAPE if config.get(name) is not None}
    if (fewer := _section(config, "reduce", home / "config.json").get("kind", "none")) != "none":
        facts["reduce"] = fewer
    if tokenizer.is_file():
        facts["tokenizer"] = read_json(tokenizer).get("kind")
    if weights.is_file():
        facts |= {"parameters": count_parameters(weights), "weights_bytes": weights.stat().st_size}
    return facts | _data(home) | _progress(directory)


def _exported(directory: Path) -> dict[str, Any]:
    """What can be read off an exported model."""
    notes, parity = (read_json(directory / name) for name in (EXPORT, "parity.json"))
    facts: dict[str, Any] = {"path": str(directory), "format_version": notes.get("format_version")}
    facts |= {name: notes[name] for name in ("engine", "quantize", "made_by") if notes.get(name) is not None}
    shape = _section(notes, "model", directory / EXPORT)
    facts |= {name: shape[name] for name in SHAPE if shape.get(name) is not None}
    facts["weights_bytes"] = _section(parity, "exported", directory / "parity.json").get("size")
    facts |= {name: parity[name] for name in PARITY if parity.get(name) is not None}
    return facts | _data(directory)


def _locate(directory: Path) -> tuple[Path, Path]:
    """The directory that describes the model, and the file with its weights."""
    home = directory / "model" if (directory / "model").is_dir() else directory
    weights = home / "model.safetensors"
    if not weights.is_file():
        best = [directory / "checkpoints" / name for name in ("best", "last")]
        weights = next((path / "model.safetensors" for path in best if path.exists()), weights)
    return (directory.parent.parent if directory.parent.name == "checkpoints" else home), weights


def _data(home: Path) -> dict[str, Any]:
    """What the model was trained on, as far as its config says."""
    for path in (home / "training_config.toml", home / "config.toml"):
        if path.is_file():
            try:
                tree = tomllib.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise StorageError(f"{path} is not valid TOML: {error}") from None
            data = _section(tree, "data", path)
            names = [str(part["tsv"]) for part in _list(data.get("parts")) if isinstance(part, dict) and "tsv" in part]
            parts = {"data_parts": ", ".join(names)} if names else {}
            return {f"data_{name}": data[name] for name in DATA if name in data} | parts
    return {}


def _section(tree: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = tree.get(name, {})
    if not isinstance(found, dict):
        raise StorageError(f"{path}: '{name}' is a value, not a section")
    return found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _progress(directory: Path) -> dict[str, Any]:
    """What a checkpoint, or the newest one of a run, says."""
    for state in (directory / "state.json", directory / "checkpoints" / "last" / "state.json"):
        if state.is_file():
            known = read_json(state)
            return {name: known.get(name) for name in PROGRESS}
    return {}


def count_parameters(weights: Path) -> int:
    """Weights in a safetensors file, from its header alone; what scales them is none of them."""
    try:
        with weights.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(length, 100_000_000)))
        others = {"__metadata__", *(f"{name}{SCALES}" for name in header)}
        return sum(math.prod(entry["shape"]) for name, entry in header.items() if name not in others)
    except (struct.error, ValueError, AttributeError, KeyError, TypeError):
        raise StorageError(f"{weights} is not a safetensors file") from None


def _readable(name: str, value: Any) -> str:
    from clearhead.training.logbook import clock

    # What others have written may be of any kind: only what can be is made pretty.
    forms: dict[str, tuple[tuple[type, ...], Callable[[Any], str]]] = {
        "weights_bytes": ((int,), lambda size: f"{size:,}"),
        "parameters": ((int,), lambda count: f"{count:,}"),
        "labels": ((list,), lambda labels: ", ".join(map(str, labels))),
        "best_loss": ((int, float), lambda loss: f"{loss:.4f}"),
        "seconds": ((int, float), lambda seconds: f"{seconds:.0f} ({clock(seconds)})"),
    }
    kinds, form = forms.get(name, ((object,), str))
    return "none yet" if value is None else form(value) if isinstance(value, kinds) else str(value)
