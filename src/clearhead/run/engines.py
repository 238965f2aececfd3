"""A model of any engine in, what it is used through out; torch is imported only where it computes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.engines.directory import EXPORT, is_exported
from clearhead.engines.opening import ENGINES, open_exported
from clearhead.engines.texts import TextTranslator
from clearhead.errors import UsageError, did_you_mean
from clearhead.run.built_in import default_model
from clearhead.storage import read_json

if TYPE_CHECKING:
    from clearhead.engines.classifying import TextClassifier
    from clearhead.engines.filling import TextFiller
    from clearhead.engines.seeing import PictureClassifier
    from clearhead.engines.writing import TextWriter

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
    if _chosen(path, engine) != TORCH:
        threads = workers or threads
    loaded = load_by(engine, path, device, threads)
    if not isinstance(loaded, TextTranslator):
        raise _other(loaded, path)
    return loaded


def load_writer(
    model: Path | None = None, *, engine: str | None = None, device: str = "auto", threads: int | None = None
) -> TextWriter:
    """Load a language model in the same way."""
    from clearhead.engines.writing import TextWriter

    path = default_model() if model is None else model
    loaded = load_by(engine, path, device, threads)
    if not isinstance(loaded, TextWriter):
        raise _other(loaded, path)
    return loaded


def load_filler(
    model: Path, *, engine: str | None = None, device: str = "auto", threads: int | None = None
) -> TextFiller:
    """Load a BERT in the same way."""
    from clearhead.engines.filling import TextFiller

    loaded = load_by(engine, model, device, threads)
    if not isinstance(loaded, TextFiller):
        raise _other(loaded, model)
    return loaded


def load_classifier(
    model: Path, *, engine: str | None = None, device: str = "auto", threads: int | None = None
) -> TextClassifier | PictureClassifier:
    """Load a classifier of texts or of pictures in the same way."""
    from clearhead.engines.classifying import TextClassifier
    from clearhead.engines.seeing import PictureClassifier

    loaded = load_by(engine, model, device, threads)
    if not isinstance(loaded, TextClassifier | PictureClassifier):
        raise _other(loaded, model)
    return loaded


def load_text_classifier(
    model: Path, *, engine: str | None = None, device: str = "auto", threads: int | None = None
) -> TextClassifier:
    """Load a classifier of texts in the same way."""
    from clearhead.engines.classifying import TextClassifier

    loaded = load_classifier(model, engine=engine, device=device, threads=threads)
    if not isinstance(loaded, TextClassifier):
        raise _other(loaded, model)
    return loaded


def load_picture_classifier(
    model: Path, *, engine: str | None = None, device: str = "auto", threads: int | None = None
) -> PictureClassifier:
    """Load a classifier of pictures in the same way."""
    from clearhead.engines.seeing import PictureClassifier

    loaded = load_classifier(model, engine=engine, device=device, threads=threads)
    if not isinstance(loaded, PictureClassifier):
        raise _other(loaded, model)
    return loaded


def load_by(engine: str | None, path: Path, device: str = "auto", threads: int | None = None) -> Any:
    """Load a model of any kind for the engine it was made for, which must be the one that is wished for, if any is."""
    if _chosen(path, engine) != TORCH:
        return open_exported(path, device, threads)
    from clearhead.run.using import load

    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    return load(path, device)


def _chosen(path: Path, engine: str | None) -> str:
    """The engine that a model is for; a wish for another is met with the way to it."""
    if engine is not None and engine not in ENGINE_NAMES:
        raise UsageError(f"there is no engine '{engine}', {did_you_mean(engine, ENGINE_NAMES)}")
    actual = made_for(path)
    if engine is not None and engine != actual:
        if actual == TORCH:
            from clearhead.checkpoint import locate

            # What is no model at all must not be called one.
            locate(path)
        way = (
            f"clearhead export {path} --to {engine} --out DIRECTORY makes one"
            if actual == TORCH
            else f"name the original, or the model that was exported to {engine}"
        )
        raise UsageError(f"{path} is a model for {actual}, not for {engine}: {way}")
    return actual


def _other(loaded: Any, path: Path) -> UsageError:
    """What to say of a model that is of another kind than the one wanted."""
    from clearhead.run.using import refusal

    return refusal(loaded, path)
