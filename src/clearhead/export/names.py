"""What others call a part of a model in, what we call it out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

FEED_FORWARDS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "swish": "silu",
    "silu": "silu",
}
"""What transformers call the bend of a feed-forward, and we."""


def in_block(name: str, blocks: str, parts: Mapping[str, str]) -> str | None:
    """What others call one of our tensors that belongs to a block; None if it belongs to none.

    `blocks` is where they keep them, and `parts` what they call what is in one.

    >>> in_block("decoder.blocks.3.feedforward.inner.bias", "h", {"feedforward.inner": "mlp.c_fc"})
    'h.3.mlp.c_fc.bias'
    """
    found = re.fullmatch(r"(?:encoder|decoder)\.blocks\.(\d+)\.(.+)\.(weight|bias)", name)
    return None if found is None else f"{blocks}.{found[1]}.{parts[found[2]]}.{found[3]}"


def encoder_sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an encoder, of words or of patches, that go by the same names in all configs of transformers."""
    return {
        "dim": config["hidden_size"],
        "ff_dim": config["intermediate_size"],
        "num_heads": config["num_attention_heads"],
        "num_layers": config["num_hidden_layers"],
        "dropout": float(config["hidden_dropout_prob"]),
        "attention_dropout": float(config["attention_probs_dropout_prob"]),
        "norm_eps": float(config["layer_norm_eps"]),
    }


def labels_of(named: Mapping[str, Any], count: int) -> list[str]:
    """The labels that a config names by number; one that comes again has its number behind it.

    >>> labels_of({"0": "crane", "2": "crane"}, 3)
    ['crane', 'LABEL_1', 'crane (2)']
    """
    labels: list[str] = []
    for number in range(count):
        label = str(named.get(str(number), f"LABEL_{number}"))
        labels.append(f"{label} ({number})" if label in labels else label)
    return labels
