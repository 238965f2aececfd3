"""A model of any engine in, what it is used through out; torch is imported only where it computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clearhead.engines.directory import EXPORT, is_exported
from clearhead.engines.opening import ENGINES, open_exported
from clearhead.engines.texts import TextTranslator
from clearhead.errors import UsageError, did_you_mean
from clearhead.run.built_in import default_model
from clearhead.storage import read_json

TORCH = "torch"
ENGINE_NAMES = (TORCH, *ENGINES)


def made_for(path: Path) -> str:
    """The engine that a model directory is for."""
    return str(read_json(path / EXPORT).get("engine")) if is_exported(path) else TORCH


def load(path: str | Path | None = None, device: str = "auto") -> Any:
    """Load a model of any kind for the engine it was made for."""
    if path is not None and is_exported(Path(path)):
        return open_exported(Path(path), device)
    from clearhead.run.using import load

    return load(path, device)


def load_translator(
    model: Path | None = None,
    *,
    engine: str | None = None,
    device: str = "auto",
    threads: int | None = None,
    workers: int | None = None,
) -> TextTranslator:
    """Load a translator for the engine it was made for; `engine` is a wish that is only checked."""
    path = default_model() if model is None else model
    if engine is not None and engine not in ENGINE_NAMES:
        raise UsageError(f"there is no engine '{engine}', {did_you_mean(engine, ENGINE_NAMES)}")
    actual = made_for(path)
    if engine is not None and engine != actual:
        way = (
            f"clearhead export {path} --to {engine} --out DIRECTORY makes one"
            if actual == TORCH
            else f"name the original, or the model that was exported to {engine}"
        )
        raise UsageError(f"{path} is a model for {actual}, not for {engine}: {way}")
    if actual != TORCH:
        return open_exported(path, device, workers or threads)
    from clearhead.run.translating import LoadedTranslator
    from clearhead.run.using import load_as

    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    return load_as(LoadedTranslator, path, device)
