"""A model in, the names of its heads out, and back: `decoder.2.cross.5` is head 5 of that layer's look at the source.

A name may say less: `decoder.2.cross` is all heads of one attention, `cross` all heads of a kind, and `cross.2.5` is
short for `decoder.2.cross.5`, `encoder.0.3` for `encoder.0.self.3`. Numbers count from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from torch import nn

from clearhead.errors import ConfigError, did_you_mean
from clearhead.inspection.record import Look, kind_and_layer
from clearhead.nn.attention import Attention

Meaning = TypeVar("Meaning")


class Head(NamedTuple):
    """One head of a model."""

    kind: str
    layer: int
    number: int
    stack: str
    """The stack it stands in: that of the cross heads is `decoder`."""

    @property
    def attention(self) -> str:
        """The name of the attention it belongs to."""
        return f"{self.stack}.{self.layer}.{'cross' if self.kind == 'cross' else 'self'}"

    @property
    def name(self) -> str:
        """Its full name."""
        return f"{self.attention}.{self.number}"


STACKS = {"cross": "decoder"}
"""The stack of the heads of a kind, where it is not called like the kind."""


def heard(looks: Iterable[Look]) -> list[Head]:
    """The heads of looks, in their order."""
    return [
        Head(look.kind, look.layer, number, STACKS.get(look.kind, look.kind)) for look in looks for number in look.heads
    ]


def attentions(model: nn.Module) -> dict[str, Attention]:
    """The attention layers of a model, by module path."""
    return {path: module for path, module in model.named_modules() if isinstance(module, Attention)}


def heads_at(path: str, attention: Attention) -> list[Head]:
    """The heads of the attention at a module path."""
    kind, layer = kind_and_layer(path)
    stack = path.partition(".blocks.")[0].rpartition(".")[-1] if kind == "cross" else kind
    return [Head(kind, layer, number, stack) for number in attention.heads]


def all_heads(model: nn.Module) -> list[Head]:
    """Every head of a model."""
    return [head for path, module in attentions(model).items() for head in heads_at(path, module)]


def named_heads(heads: Iterable[Head]) -> dict[str, list[Head]]:
    """What every name means that speaks of some of these heads."""
    table: dict[str, list[Head]] = {}
    for head in heads:
        short = f"{head.kind}.{head.layer}"
        for name in dict.fromkeys((head.name, head.attention, f"{short}.{head.number}", short, head.kind)):
            table.setdefault(name, []).append(head)
    return table


def meant(table: Mapping[str, Meaning], name: str) -> Meaning:
    """What a name means, or an error with the nearest one."""
    try:
        return table[name]
    except KeyError:
        near = did_you_mean(name, table)
        if near.startswith("choose"):
            near = "names are like encoder.0, decoder.2.self or decoder.2.cross.5"
        raise ConfigError(f"this model has no head or layer '{name}': {near}") from None
