"""A module and examples of what goes in in, one ONNX file out; and what graphs with a growing past have in common."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.nn.cache import KeyValueCache, KeyValues
from clearhead.nn.embedding import OutputLayer
from clearhead.nn.stacks import Block, Stack

OPSET = 18
PARTS = ("key", "value")


class Projection(nn.Module):
    """The output layer; where `copied`, over a table of its own.

    The quantiser cannot tell a table that is both looked up and multiplied by: for it, the product has its own copy.
    """

    def __init__(self, output: OutputLayer, *, copied: bool) -> None:
        super().__init__()
        self.output = output
        self.table = nn.Parameter(output.weight.T.clone(), requires_grad=False) if copied else None

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None:
            return self.output(x)
        bias = self.output.bias
        return x @ self.table if bias is None else x @ self.table + bias


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


def blocks_of(stack: Stack) -> list[Block]:
    """The blocks of a stack."""
    return [block for block in stack.blocks if isinstance(block, Block)]


def names(what: str, num_layers: int) -> list[str]:
    """What the keys and values of each layer are called.

    >>> names("past", 1)
    ['past.0.key', 'past.0.value']
    """
    return [f"{what}.{layer}.{part}" for layer in range(num_layers) for part in PARTS]


def pairs(tensors: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Keys and values that come one after the other, together."""
    return zip(tensors[::2], tensors[1::2], strict=True)


def write_graph(
    graph: nn.Module, inputs: tuple[Any, ...], path: Path, input_names: list[str], output_names: list[str], shapes: Any
) -> None:
    """Write a graph that takes any lengths of the axes that `shapes` names."""
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


def to_int8(path: Path) -> None:
    """Keep the matrices of a graph in a quarter of the space."""
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
