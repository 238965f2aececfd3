"""A path in, an exported model ready for use out.

A new engine, or a new kind of model in one, is one function that opens it and one line in ENGINES.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from clearhead.engines.directory import Exported, read_exported
from clearhead.engines.texts import ExportedTranslator
from clearhead.errors import choose
from clearhead.text.tokenizer import Tokenizer, TokenizerPair

Open: TypeAlias = Callable[[Exported, int, str], Any]
"""What is known of a model, how many cores to use, and the device, in; what its kind of model is used through out."""


def open_exported(path: Path, device: str = "auto", threads: int | None = None, *, sealed: bool = True) -> Any:
    """Open an exported model on as many cores as there are, or on `threads` of them: a translator, for example.

    One that is not yet `sealed` has no sums to be checked by.
    """
    exported = read_exported(path, sealed=sealed)
    kinds = choose(ENGINES, exported.notes.engine, "engine")
    return choose(kinds, exported.notes.kind, "kind of model")(exported, threads or cores(), device)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _ctranslate2_translator(exported: Exported, threads: int, device: str) -> Any:
    from clearhead.engines.ctranslate2 import CTranslate2Engine

    tokenizers = TokenizerPair.load(exported.path)
    return ExportedTranslator(CTranslate2Engine(exported, tokenizers, threads, device), tokenizers, exported)


def _ctranslate2_gpt(exported: Exported, threads: int, device: str) -> Any:
    from clearhead.engines.ctranslate2_writing import CTranslate2Writer
    from clearhead.engines.writing import ExportedWriter

    tokenizer = Tokenizer.load(exported.path)
    return ExportedWriter(CTranslate2Writer(exported, tokenizer, threads, device), tokenizer, exported)


def _onnx_translator(exported: Exported, threads: int, device: str) -> Any:
    from clearhead.engines.onnx import OnnxEngine

    tokenizers = TokenizerPair.load(exported.path)
    return ExportedTranslator(OnnxEngine(exported, tokenizers, threads, device), tokenizers, exported)


def _onnx_gpt(exported: Exported, threads: int, device: str) -> Any:
    from clearhead.engines.onnx_writing import OnnxWriter
    from clearhead.engines.writing import ExportedWriter

    return ExportedWriter(OnnxWriter(exported, threads, device), Tokenizer.load(exported.path), exported)


def _onnx_classifier(exported: Exported, threads: int, device: str) -> Any:
    from clearhead.engines.classifying import ExportedClassifier
    from clearhead.engines.onnx_reading import OnnxReader

    return ExportedClassifier(OnnxReader(exported, threads, device), TokenizerPair.load(exported.path), exported)


def _onnx_bert(exported: Exported, threads: int, device: str) -> Any:
    from clearhead.engines.filling import ExportedFiller
    from clearhead.engines.onnx_reading import OnnxReader

    return ExportedFiller(OnnxReader(exported, threads, device), TokenizerPair.load(exported.path), exported)


def _onnx_vit(exported: Exported, threads: int, device: str) -> Any:
    from clearhead.engines.onnx_reading import OnnxReader
    from clearhead.engines.seeing import ExportedPictureClassifier

    return ExportedPictureClassifier(OnnxReader(exported, threads, device), exported)


ENGINES: dict[str, dict[str, Open]] = {
    "ctranslate2": {"translator": _ctranslate2_translator, "gpt": _ctranslate2_gpt},
    "onnx": {
        "translator": _onnx_translator,
        "gpt": _onnx_gpt,
        "classifier": _onnx_classifier,
        "bert": _onnx_bert,
        "vit": _onnx_vit,
    },
}
"""By engine, then by the kind of model."""
