"""A translator in, two ONNX graphs out: an encoder that reads, and a decoder that takes one step with a growing past.

`clearhead.engines.onnx` says what goes in and comes out, and runs them. Every variant of every part can be written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.engines.extras import needed
from clearhead.export.graphs import PARTS, GrowingPast, Projection, blocks_of, names, pairs, to_int8, write_graph
from clearhead.models.translator import Translator
from clearhead.nn.cache import BlockCache, KeyValues, StackCache
from clearhead.text.tokenizer import TokenizerPair


class Reader(nn.Module):
    """Source ids in, the keys and values that each decoder layer looks at out."""

    def __init__(self, model: Translator) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, real: Tensor) -> tuple[Tensor, ...]:
        context = self.model.encode(source, real).x
        crosses = [block.cross for block in blocks_of(self.model.decoder) if block.cross is not None]
        return tuple(part for cross in crosses for part in cross.remember(context))


class Writer(nn.Module):
    """The newest token of each row, its past and what it looks at in; logits and the grown past out."""

    def __init__(self, model: Translator, *, copied: bool) -> None:
        super().__init__()
        self.model = model
        self.projection = Projection(model.output, copied=copied)

    def forward(self, ids: Tensor, real: Tensor, past: list[Tensor], memory: list[Tensor]) -> tuple[Tensor, ...]:
        pasts = [GrowingPast(*pair) for pair in pairs(past)]
        seen = [KeyValues(*pair) for pair in pairs(memory)]
        cache = StackCache(tuple(BlockCache(*both) for both in zip(pasts, seen, strict=True)), real)
        x = self.model.decoder(self.model.target_embedding(ids[:, None]), cache=cache)
        return self.projection(x[:, 0]), *(part for one in pasts for part in one.all)


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
            to_int8(directory / name)


def _write_reader(model: Translator, path: Path) -> None:
    source, real = torch.ones(2, 5, dtype=torch.long), torch.ones(2, 5, dtype=torch.bool)
    axes, layers = _axes(model), model.config.decoder_layers
    both = {0: axes["rows"], 1: axes["source"]}
    write_graph(Reader(model), (source, real), path, ["source", "real"], names("memory", layers), (both, both))


def _write_writer(model: Translator, path: Path, *, copied: bool) -> None:
    config = model.config
    ids, real = torch.ones(2, dtype=torch.long), torch.ones(2, 5, dtype=torch.bool)
    head_dim = config.dim // config.num_heads
    blocks = blocks_of(model.decoder)
    past = [torch.zeros(2, block.attention.num_kv_heads, 3, head_dim) for block in blocks for _ in PARTS]
    memory = [
        torch.zeros(2, block.cross.num_kv_heads, 5, head_dim)
        for block in blocks
        for _ in PARTS
        if block.cross is not None
    ]
    axes, layers = _axes(model), config.decoder_layers
    shapes = (
        {0: axes["rows"]},
        {0: axes["rows"], 1: axes["source"]},
        [{0: axes["rows"], 2: axes["past"]} for _ in past],
        [{0: axes["rows"], 2: axes["source"]} for _ in memory],
    )
    inputs = ["ids", "real", *names("past", layers), *names("memory", layers)]
    outputs = ["logits", *names("present", layers)]
    write_graph(Writer(model, copied=copied), (ids, real, past, memory), path, inputs, outputs, shapes)


def _axes(model: Translator) -> dict[str, Any]:
    longest = model.config.max_len
    return {
        "rows": torch.export.Dim("rows"),
        "source": torch.export.Dim("source", max=longest),
        "past": torch.export.Dim("past", max=longest - 1),
    }
