"""A model in, the same model with fresh weights out: the one place where initial values are chosen.

A new way to start is one function and one line in STARTS.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from clearhead.errors import ConfigError, choose
from clearhead.nn.attention import Attention
from clearhead.nn.embedding import OutputLayer, TokenEmbedding
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.patches import ClassToken, LearnedGrid
from clearhead.nn.positions import Learned
from clearhead.nn.residual import NoResidual


def initialise(model: nn.Module, start: str = "glorot") -> None:
    """Give a model fresh weights, in one of the ways in STARTS."""
    choose(STARTS, start, "start")(model)


def glorot(model: nn.Module) -> None:
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


def still(model: nn.Module) -> None:
    """The same, but what a sublayer adds to the stream starts at nothing: tokens first pass through as they are.

    Each sublayer then grows into what the others leave undone (Goyal et al. 2017; Zhang et al. 2019, Fixup).
    """
    glorot(model)
    for module in model.modules():
        if isinstance(module, NoResidual):
            raise ConfigError(
                "start 'still' needs a way around each sublayer, or nothing would come through: use glorot"
            )
        if isinstance(module, Attention):
            nn.init.zeros_(module.output.weight)
        elif isinstance(module, FeedForward):
            nn.init.zeros_(module.outer.weight)


def annotated(model: nn.Module) -> None:
    """As The Annotated Transformer starts: Glorot for tables of tokens as well, whose rows are smaller for it.

    With √dim times such a row, a token of a large vocabulary enters with about a third of what its place adds.
    """
    glorot(model)
    for module in model.modules():
        if isinstance(module, OutputLayer | TokenEmbedding):
            nn.init.xavier_uniform_(module.weight)


STARTS: dict[str, Callable[[nn.Module], None]] = {"glorot": glorot, "still": still, "annotated": annotated}
