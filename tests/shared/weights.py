"""Models whose weights are all of their own."""

from __future__ import annotations

from torch import nn

from clearhead.nn.norms import Norm
from clearhead.nn.pooling import AttentionPooling


def stir(model: nn.Module) -> None:
    """Give what begins at zero or one values of its own: ones and zeros would hide mistakes."""
    for module in model.modules():
        if isinstance(module, Norm):
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
                tensor.data.uniform_(0.5, 1.5) if name in {"weight", "running_var"} else tensor.data.normal_(std=0.3)
        elif isinstance(module, nn.Linear) and module.bias is not None:
            module.bias.data.normal_(std=0.3)
        elif isinstance(module, AttentionPooling):
            module.query.data.normal_()
