"""A language model in, one ONNX graph out: it reads any number of tokens after any past, none included.

`clearhead.engines.onnx_writing` says what goes in and comes out, and runs it. Every variant of every part can be
written.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from clearhead.engines.extras import needed
from clearhead.export.graphs import PARTS, GrowingPast, Projection, blocks_of, names, pairs, to_int8, write_graph
from clearhead.models.gpt import Gpt
from clearhead.nn.cache import BlockCache, StackCache
from clearhead.nn.positions import Learned, Positions, Sinusoidal
from clearhead.text.tokenizer import TokenizerPair

GRAPH = "model.onnx"


class AnyPlace(Positions):
    """A scheme that asks nothing about lengths: a graph cannot know that a past and what follows fit together."""

    def __init__(self, scheme: Positions) -> None:
        super().__init__(dim=scheme.dim, num_heads=scheme.num_heads, head_dim=scheme.head_dim, max_len=scheme.max_len)
        self.scheme = scheme

    def embed(self, x: Tensor, offset: int = 0, places: Tensor | None = None) -> Tensor:
        if isinstance(self.scheme, Sinusoidal):
            return x + self.scheme.table[_places(x, 1, offset)]
        if isinstance(self.scheme, Learned):
            return x + self.scheme.weight[_places(x, 1, offset)]
        return x

    def rotate(self, x: Tensor, offset: int = 0, at: Tensor | None = None) -> Tensor:
        return self.scheme.rotate(x, 0, _places(x, 2, offset).float()[None])

    def bias(
        self, query_len: int, key_len: int, device: torch.device | None = None, at: Tensor | None = None
    ) -> Tensor | None:
        return self.scheme.bias(query_len, key_len, device)


def _places(x: Tensor, axis: int, offset: int) -> Tensor:
    return torch.arange(x.shape[axis], device=x.device) + offset


class Reader(nn.Module):
    """Further tokens of each row and its past in; the logits of the token after the last and the grown past out."""

    def __init__(self, model: Gpt, *, copied: bool) -> None:
        super().__init__()
        self.model = model
        self.projection = Projection(model.output, copied=copied)

    def forward(self, ids: Tensor, past: list[Tensor]) -> tuple[Tensor, ...]:
        pasts = [GrowingPast(*pair) for pair in pairs(past)]
        x = self.model.decoder(self.model.embedding(ids), cache=StackCache(tuple(map(BlockCache, pasts))))
        return self.projection(x[:, -1]), *(part for one in pasts for part in one.all)


def write_gpt(model: Gpt, tokenizers: TokenizerPair, directory: Path, quantize: str | None) -> None:
    """Write `model.onnx`; int8 keeps matrices in a quarter of the space."""
    needed("onnx", "onnxscript", "onnxruntime")
    # The exact kernel is plain arithmetic, which any runtime knows.
    plain = Gpt(model.config.model_copy(update={"kernel": "exact"}))
    plain.load_state_dict(model.state_dict())
    plain.eval().requires_grad_(False)
    plain.decoder.positions = AnyPlace(plain.decoder.positions)
    config, layers = plain.config, plain.config.num_layers
    past = [
        torch.zeros(2, block.attention.num_kv_heads, 3, config.dim // config.num_heads)
        for block in blocks_of(plain.decoder)
        for _ in PARTS
    ]
    rows, length = torch.export.Dim("rows"), torch.export.Dim("past")
    # From 2 on for the exporter, which makes a case of 1 by itself; the graph takes 1 as any other.
    time = torch.export.Dim("time", min=2)
    write_graph(
        Reader(plain, copied=quantize is not None),
        (torch.ones(2, 3, dtype=torch.long), past),
        directory / GRAPH,
        ["ids", *names("past", layers)],
        ["logits", *names("present", layers)],
        ({0: rows, 1: time}, [{0: rows, 2: length} for _ in past]),
    )
    if quantize == "int8":
        to_int8(directory / GRAPH)
