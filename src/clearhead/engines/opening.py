"""A path in, an exported translator ready for use out.

A new engine is one class with the members of `Engine`, and one function that opens it in ENGINES.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from clearhead.engines.directory import Exported, read_exported
from clearhead.engines.texts import Engine, ExportedTranslator
from clearhead.errors import choose
from clearhead.text.tokenizer import TokenizerPair

Open: TypeAlias = Callable[[Exported, TokenizerPair, int, str], Engine]
"""What is known of a model, its tokenizers, how many cores to use, and the device, in; an engine out."""


def open_exported(
    path: Path, device: str = "auto", threads: int | None = None, *, sealed: bool = True
) -> ExportedTranslator:
    """Open an exported translator on as many cores as there are, or on `threads` of them.

    One that is not yet `sealed` has no sums to be checked by.
    """
    exported = read_exported(path, sealed=sealed)
    tokenizers = TokenizerPair.load(path)
    engine = choose(ENGINES, exported.notes.engine, "engine")(exported, tokenizers, threads or cores(), device)
    return ExportedTranslator(engine, tokenizers, exported)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _ctranslate2(exported: Exported, tokenizers: TokenizerPair, threads: int, device: str) -> Engine:
    from clearhead.engines.ctranslate2 import CTranslate2Engine

    return CTranslate2Engine(exported, tokenizers, threads, device)


def _onnx(exported: Exported, tokenizers: TokenizerPair, threads: int, device: str) -> Engine:
    from clearhead.engines.onnx import OnnxEngine

    return OnnxEngine(exported, tokenizers, threads, device)


ENGINES: dict[str, Open] = {"ctranslate2": _ctranslate2, "onnx": _onnx}
