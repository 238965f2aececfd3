"""The name of a format and a model in, files out.

A new format, or a new kind of model in one, is one function and one line in TARGETS.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from clearhead.errors import UnavailableError, choose
from clearhead.export import ctranslate2, onnx, onnx_gpt, onnx_readers
from clearhead.models import Model
from clearhead.models.reduction import ReduceConfig
from clearhead.text.tokenizer import TokenizerPair

Write: TypeAlias = Callable[[Any, Any, Path, str | None], None]
"""A model, its tokenizers, a directory and how to quantise in; the files of the engine's own format out."""

QUANTIZATIONS = ("int8",)


def write_model(to: str, model: Model, tokenizers: TokenizerPair | None, directory: Path, quantize: str | None) -> None:
    """Write a model for an engine, or say that it cannot be."""
    writers = choose(TARGETS, to, "format")
    kind = model.config.kind
    if kind not in writers:
        others = [name for name, kinds in TARGETS.items() if kind in kinds]
        advice = f": --to {others[0]} can" if others else ""
        raise UnavailableError(f"a {kind} cannot be exported to {to}{advice}")
    _check_whole(getattr(model.config, "reduce", ReduceConfig()).kind)
    writers[kind](model, tokenizers, directory, quantize)


def _check_whole(reduction: str) -> None:
    """Refuse a model whose tokens become fewer."""
    if reduction != "none":
        raise UnavailableError(
            f"no export can express this model: its tokens become fewer on the way (reduce.kind is '{reduction}'), "
            "and how many are left depends on what it reads; with --reduce none all of them are kept"
        )


TARGETS: dict[str, dict[str, Write]] = {
    "ctranslate2": {"translator": ctranslate2.write_translator, "gpt": ctranslate2.write_gpt},
    "onnx": {
        "translator": onnx.write_translator,
        "gpt": onnx_gpt.write_gpt,
        "classifier": onnx_readers.write_classifier,
        "bert": onnx_readers.write_bert,
        "vit": onnx_readers.write_vit,
    },
}
"""By format, then by the kind of model."""
