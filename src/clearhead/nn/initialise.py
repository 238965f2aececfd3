"""A model in, the same model with fresh weights out: the one place where initial values are chosen."""

from __future__ import annotations

from torch import nn

from clearhead.nn.embedding import OutputLayer, TokenEmbedding
from clearhead.nn.patches import ClassToken, LearnedGrid
from clearhead.nn.positions import Learned


def initialise(model: nn.Module) -> None:
    """Glorot for matrices and convolutions, zero for their biases; norms start as they were made.

    An embedding that is scaled by √dim starts at 1/√dim, so that tokens enter with unit variance and a tied output
    layer starts with logits of about one.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, OutputLayer | TokenEmbedding):
            nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
        elif isinstance(module, Learned | LearnedGrid | ClassToken):
            nn.init.normal_(module.weight, std=0.02)
