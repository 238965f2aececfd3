"""The settings of a model that reads in, its encoder out: what BERT and the classifier have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from clearhead.config import one_of
from clearhead.models.model import ModelConfig
from clearhead.nn.feedforward import FEED_FORWARDS
from clearhead.nn.initialise import STARTS
from clearhead.nn.kernels import KERNELS
from clearhead.nn.norms import NORMS
from clearhead.nn.positions import POSITIONS
from clearhead.nn.reduction import Reduction
from clearhead.nn.residual import RESIDUALS
from clearhead.nn.stacks import Stack, build_stack


class EncoderConfig(ModelConfig):
    """The shape of an encoder."""

    vocab_size: int = Field(0, ge=0)
    """Entries of the vocabulary; filled in from the tokenizer."""
    dim: int = Field(256, ge=1)
    """Width of the model."""
    ff_dim: int = Field(1024, ge=1)
    """Inner width of the feed-forwards."""
    num_heads: int = Field(4, ge=1)
    """Attention heads."""
    num_kv_heads: int | None = Field(None, ge=1)
    """Heads of keys and values: as many as num_heads if not given, fewer for grouped-query, one for multi-query."""
    encoder_heads: list[list[int]] | None = None
    """For each layer which of its num_heads there are, counted from 0, where some were pruned; else all."""
    num_layers: int = Field(4, ge=1)
    """Depth."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Share of features that are dropped while training."""
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of attention weights that are dropped while training."""
    norm: Annotated[str, one_of(NORMS, "norm")] = "layer"
    """Which norm."""
    norm_eps: float | None = Field(None, gt=0)
    """What norms add to a variance before they divide by its root; each norm's own number if not given."""
    embedding_norm: bool = False
    """Put a norm between the embeddings and the first layer, as BERT does."""
    residual: Annotated[str, one_of(RESIDUALS, "residual arrangement")] = "pre"
    """Where the norm stands: before each sublayer, after it, or with no way around the sublayer at all."""
    start: Annotated[str, one_of(STARTS, "start")] = "glorot"
    """The first weights: glorot; still, where sublayers add nothing at first (quicker to learn with norms before
    them); or annotated, where tables of tokens are drawn like other matrices."""
    feedforward: Annotated[str, one_of(FEED_FORWARDS, "feed-forward")] = "gelu"
    """The bend between the two maps of a feed-forward."""
    positions: Annotated[str, one_of(POSITIONS, "position scheme")] = "learned"
    """How a token knows where it stands."""
    window: int | None = Field(None, ge=1)
    """Attention looks at positions fewer than this many steps away; everywhere if not given."""
    scale_embeddings: bool = True
    """Multiply embeddings by the square root of dim."""
    max_len: int = Field(256, ge=4)
    """The longest sequence, in tokens, that the model is made for."""
    kernel: Annotated[str, one_of(KERNELS, "kernel")] = "auto"
    """How attention is computed."""


def build_encoder(config: EncoderConfig, reductions: Sequence[Reduction] | None = None) -> Stack:
    """The stack that these settings describe; `reductions` are what makes its tokens fewer."""
    return build_stack(
        dim=config.dim,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        ff_dim=config.ff_dim,
        num_layers=config.num_layers,
        max_len=config.max_len,
        norm=config.norm,
        norm_eps=config.norm_eps,
        embedding_norm=config.embedding_norm,
        residual=config.residual,
        feedforward=config.feedforward,
        positions=config.positions,
        kernel=config.kernel,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        window=config.window,
        heads=config.encoder_heads,
        reductions=reductions,
    )
