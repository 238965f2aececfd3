"""A model in, a tape of every head's attention weights out; no flag in any signature, nothing changed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from clearhead.nn.attention import Attention
from clearhead.nn.kernels import Exact


class Look(NamedTuple):
    """What the heads of one layer looked at in one pass."""

    kind: str
    """`encoder`, `decoder` or `cross`: who looked at whom."""
    layer: int
    weights: Float[Tensor, "batch heads query key"]


@dataclass
class Tape:
    """All looks since recording began, in the order they happened."""

    looks: list[Look] = field(default_factory=list)

    def of(self, kind: str) -> list[Look]:
        """The looks of one kind, layer by layer."""
        return sorted((look for look in self.looks if look.kind == kind), key=lambda look: look.layer)


@contextmanager
def recording(model: nn.Module) -> Iterator[Tape]:
    """Collect the weights of every attention layer of a model; within, the kernel is the exact one."""
    tape = Tape()
    layers = {path: module for path, module in model.named_modules() if isinstance(module, Attention)}
    kernels = {path: module.kernel for path, module in layers.items()}
    try:
        for path, module in layers.items():
            module.kernel = _listening(tape, path)
        yield tape
    finally:
        for path, module in layers.items():
            module.kernel = kernels[path]


def _listening(tape: Tape, path: str) -> Exact:
    kind, layer = kind_and_layer(path)
    kernel = Exact()
    kernel.softmax.register_forward_hook(
        lambda module, inputs, weights: tape.looks.append(Look(kind, layer, weights.detach()))
    )
    return kernel


def kind_and_layer(path: str) -> tuple[str, int]:
    """What a module path says of an attention layer; one outside any stack is plain `attention`, in layer 0.

    >>> kind_and_layer("decoder.blocks.3.cross"), kind_and_layer("encoder.blocks.0.attention")
    (('cross', 3), ('encoder', 0))
    >>> kind_and_layer("blocks.1.attention"), kind_and_layer("")
    (('attention', 1), ('attention', 0))
    """
    stack, blocks, rest = path.rpartition("blocks.")
    layer, _, part = rest.partition(".")
    kind = "cross" if part == "cross" else stack.rstrip(".").rpartition(".")[-1]
    return (kind or "attention", int(layer)) if blocks else ("attention", 0)
