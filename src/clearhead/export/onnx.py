"""A translator in, two ONNX graphs out: an encoder that reads, and a decoder that takes one step with a growing past.

`clearhead.engines.onnx` says what goes in and comes out, and runs them. Every variant of every part can be written.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.engines.extras import needed
from clearhead.models.translator import Translator
from clearhead.nn.cache import BlockCache, KeyValueCache, KeyValues, StackCache
from clearhead.nn.stacks import Block
from clearhead.text.tokenizer import TokenizerPair

OPSET = 18
PARTS = ("key", "value")


class Reader(nn.Module):
    """Source ids in, the keys and values that each decoder layer looks at out."""

    def __init__(self, model: Translator) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, real: Tensor) -> tuple[Tensor, ...]:
        context = self.model.encode(source, real)
        crosses = [block.cross for block in _blocks(self.model) if block.cross is not None]
        return tuple(part for cross in crosses for part in cross.remember(context))


class Writer(nn.Module):
    """The newest token of each row, its past and what it looks at in; logits and the grown past out.

    The quantiser cannot tell a table that is both looked up and multiplied by: for it, the product has its own copy.
    """

    def __init__(self, model: Translator, *, copied: bool) -> None:
        super().__init__()
        self.model = model
        self.projection = nn.Parameter(model.output.weight.T.clone(), requires_grad=False) if copied else None

    def forward(self, ids: Tensor, real: Tensor, past: list[Tensor], memory: list[Tensor]) -> tuple[Tensor, ...]:
        pasts = [GrowingPast(*pair) for pair in _pairs(past)]
        seen = [KeyValues(*pair) for pair in _pairs(memory)]
        cache = StackCache(tuple(BlockCache(*both) for both in zip(pasts, seen, strict=True)), real)
        x = self.model.decoder(self.model.target_embedding(ids[:, None]), cache=cache)
        return self._logits(x[:, 0]), *(part for one in pasts for part in one.all)

    def _logits(self, x: Tensor) -> Tensor:
        if self.projection is None:
            return self.model.output(x)
        bias = self.model.output.bias
        return x @ self.projection if bias is None else x @ self.projection + bias


class GrowingPast(KeyValueCache):
    """A past that comes in whole and goes out one longer: nothing is changed in place, as a graph must have it."""

    def __init__(self, key: Tensor, value: Tensor) -> None:
        super().__init__()
        self.all = KeyValues(key, value)
        self.length = key.shape[2]

    def append(self, key: Tensor, value: Tensor) -> KeyValues:
        """All keys and values, the oldest first."""
        self.all = KeyValues(torch.cat((self.all.key, key), 2), torch.cat((self.all.value, value), 2))
        return self.all


def write_translator(model: Translator, tokenizers: TokenizerPair, directory: Path, quantize: str | None) -> None:
    """Write `encoder.onnx` and `decoder.onnx`, each in one file; int8 keeps matrices in a quarter of the space."""
    needed("onnx", "onnxscript", "onnxruntime")
    # The exact kernel is plain arithmetic, which any runtime knows.
    plain = Translator(model.config.model_copy(update={"kernel": "exact"}))
    plain.load_state_dict(model.state_dict())
    plain.eval().requires_grad_(False)
    _write_reader(plain, directory / "encoder.onnx")
    _write_writer(plain, directory / "decoder.onnx", copied=quantize is not None)
    if quantize == "int8":
        for name in ("encoder.onnx", "decoder.onnx"):
            _to_int8(directory / name)


def _write_reader(model: Translator, path: Path) -> None:
    source, real = torch.ones(2, 5, dtype=torch.long), torch.ones(2, 5, dtype=torch.bool)
    axes = _axes(model)
    both = {0: axes["rows"], 1: axes["source"]}
    _write(Reader(model), (source, real), path, ["source", "real"], _names("memory", model), (both, both))


def _write_writer(model: Translator, path: Path, *, copied: bool) -> None:
    config = model.config
    ids, real = torch.ones(2, dtype=torch.long), torch.ones(2, 5, dtype=torch.bool)
    head_dim = config.dim // config.num_heads
    past = [torch.zeros(2, block.attention.num_kv_heads, 3, head_dim) for block in _blocks(model) for _ in PARTS]
    memory = [
        torch.zeros(2, block.cross.num_kv_heads, 5, head_dim)
        for block in _blocks(model)
        for _ in PARTS
        if block.cross is not None
    ]
    axes = _axes(model)
    shapes = (
        {0: axes["rows"]},
        {0: axes["rows"], 1: axes["source"]},
        [{0: axes["rows"], 2: axes["past"]} for _ in past],
        [{0: axes["rows"], 2: axes["source"]} for _ in memory],
    )
    inputs = ["ids", "real", *_names("past", model), *_names("memory", model)]
    outputs = ["logits", *_names("present", model)]
    _write(Writer(model, copied=copied), (ids, real, past, memory), path, inputs, outputs, shapes)


def _axes(model: Translator) -> dict[str, Any]:
    longest = model.config.max_len
    return {
        "rows": torch.export.Dim("rows"),
        "source": torch.export.Dim("source", max=longest),
        "past": torch.export.Dim("past", max=longest - 1),
    }


def _write(
    graph: nn.Module, inputs: tuple[Any, ...], path: Path, input_names: list[str], output_names: list[str], shapes: Any
) -> None:
    with _quietly():
        torch.onnx.export(
            graph.eval(),
            inputs,
            str(path),
            dynamo=True,
            input_names=input_names,
            output_names=output_names,
            dynamic_shapes=shapes,
            opset_version=OPSET,
            external_data=False,
            optimize=True,
            verbose=False,
        )


def _to_int8(path: Path) -> None:
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(path)
    # The shapes that the exporter noted are in the quantiser's way; it finds them out itself.
    del graph.graph.value_info[:]
    draft = path.with_suffix(".int8")
    with _quietly():
        # Seven bits: a CPU that adds two products up in 16 bits (AVX2 without VNNI) would cut off larger sums.
        quantize_dynamic(graph, str(draft), weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
    draft.replace(path)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """The exporters talk about themselves, on stdout too."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _blocks(model: Translator) -> list[Block]:
    return [block for block in model.decoder.blocks if isinstance(block, Block)]


def _names(what: str, model: Translator) -> list[str]:
    return [f"{what}.{layer}.{part}" for layer in range(model.config.decoder_layers) for part in PARTS]


def _pairs(tensors: list[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(tensors[::2], tensors[1::2], strict=True)
