"""A classifier, a BERT or a Vision Transformer in, one ONNX graph out: all that may be answered, in one step.

`clearhead.engines.onnx_reading` runs them. Every variant of every part can be written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.engines.extras import needed
from clearhead.errors import UnavailableError
from clearhead.export.graphs import Projection, to_int8, write_graph
from clearhead.models.bert import Bert
from clearhead.models.classifier import Classifier
from clearhead.models.vit import Vit
from clearhead.text.tokenizer import TokenizerPair

GRAPH = "model.onnx"


class Masked(nn.Module):
    """A BERT as a graph: ids, what is hidden, what is not padding and, where it knows segments, these in; the logits
    of every position and, where it can tell, whether the second segment follows the first out."""

    def __init__(self, model: Bert, *, copied: bool) -> None:
        super().__init__()
        self.model = model
        self.projection = Projection(model.output, copied=copied)

    def forward(self, ids: Tensor, hidden: Tensor, real: Tensor, segments: Tensor | None = None) -> tuple[Tensor, ...]:
        x = self.model.encode(ids, hidden, segments, real=real)
        logits = self.projection(self.model.words(x.flatten(0, 1))).unflatten(0, ids.shape)
        return (logits,) if self.model.next is None else (logits, self.model.follows(x[:, 0]))


def write_classifier(model: Classifier, tokenizers: TokenizerPair, directory: Path, quantize: str | None) -> None:
    """Write `model.onnx`: `ids` and `real`, both (rows, time), in; `logits`, (rows, labels), out."""
    plain = _plain(Classifier, model)
    ids = _some_ids(model.config.max_len)
    _write(plain, {"ids": ids, "real": ids.bool()}, directory, _text_axes(model.config.max_len), quantize)


def write_bert(model: Bert, tokenizers: TokenizerPair, directory: Path, quantize: str | None) -> None:
    """Write `model.onnx`: `ids`, `hidden` and `real`, all (rows, time), in; `logits`, (rows, time, vocab), out.

    Where the model has them, `segments`, (rows, time), go in too and `follows`, (rows, 2), come out.
    """
    if getattr(model, "output", None) is None:
        raise UnavailableError(
            "this BERT has no head that names hidden words: there is nothing that a copy could answer"
        )
    plain = Masked(_plain(Bert, model), copied=quantize is not None)
    ids = _some_ids(model.config.max_len)
    inputs = {"ids": ids, "hidden": torch.eye(*ids.shape, dtype=torch.bool), "real": ids.bool()}
    if model.segments is not None:
        inputs["segments"] = torch.zeros_like(ids)
    outputs = ["logits"] if model.next is None else ["logits", "follows"]
    _write(plain, inputs, directory, _text_axes(model.config.max_len), quantize, outputs)


def write_vit(model: Vit, tokenizers: None, directory: Path, quantize: str | None) -> None:
    """Write `model.onnx`: `pictures`, (rows, channels, height, width) of bytes, in; `logits`, (rows, labels), out."""
    config = model.config
    pictures = torch.zeros(2, config.channels, config.height, config.width, dtype=torch.uint8)
    rows = {0: torch.export.Dim("rows")}
    _write(_plain(Vit, model), {"pictures": pictures}, directory, rows, quantize)


def _plain(kind: Any, model: Any) -> Any:
    """A copy with the exact kernel, which is plain arithmetic that any runtime knows."""
    needed("onnx", "onnxscript", "onnxruntime")
    plain = kind(model.config.model_copy(update={"kernel": "exact"}))
    plain.load_state_dict(model.state_dict())
    return plain.eval().requires_grad_(False)


def _some_ids(max_len: int) -> Tensor:
    return torch.ones(2, min(5, max_len), dtype=torch.long)


def _text_axes(max_len: int) -> dict[int, Any]:
    return {0: torch.export.Dim("rows"), 1: torch.export.Dim("time", max=max_len)}


def _write(
    graph: nn.Module,
    inputs: dict[str, Tensor],
    directory: Path,
    axes: dict[int, Any],
    quantize: str | None,
    outputs: Sequence[str] = ("logits",),
) -> None:
    """Write a graph whose inputs, given as examples, all have the same axes of any length."""
    shapes = (axes,) * len(inputs)
    write_graph(graph, tuple(inputs.values()), directory / GRAPH, list(inputs), list(outputs), shapes)
    if quantize == "int8":
        to_int8(directory / GRAPH)
