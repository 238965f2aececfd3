"""Ids in, the logits of what comes after each out: the decoder-only language model (Radford et al. 2018, 2019)."""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from clearhead.config import one_of
from clearhead.errors import ConfigError
from clearhead.models.model import Model, ModelConfig
from clearhead.nn.cache import StackCache
from clearhead.nn.embedding import OutputLayer, TokenEmbedding
from clearhead.nn.feedforward import FEED_FORWARDS
from clearhead.nn.initialise import STARTS, initialise
from clearhead.nn.kernels import KERNELS
from clearhead.nn.norms import NORMS
from clearhead.nn.positions import POSITIONS
from clearhead.nn.residual import RESIDUALS
from clearhead.nn.stacks import build_stack


class GptConfig(ModelConfig):
    """The shape of a language model."""

    kind: Annotated[str, one_of(["gpt"], "model")] = "gpt"
    """Which model this is."""
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
    decoder_heads: list[list[int]] | None = None
    """For each layer which of its num_heads there are, counted from 0, where some were pruned; else all."""
    num_layers: int = Field(4, ge=1)
    """Depth of the model."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Share of features that are dropped while training."""
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of attention weights that are dropped while training."""
    norm: Annotated[str, one_of(NORMS, "norm")] = "layer"
    """The norm: one that does not look at other positions."""
    norm_eps: float | None = Field(None, gt=0)
    """What norms add to a variance before they divide by its root; each norm's own number if not given."""
    residual: Annotated[str, one_of(RESIDUALS, "residual arrangement")] = "pre"
    """Where the norm stands: before each sublayer, after it, or with no way around the sublayer at all."""
    start: Annotated[str, one_of(STARTS, "start")] = "glorot"
    """The first weights: glorot; still, where sublayers add nothing at first (quicker to learn with norms before
    them); or annotated, where tables of tokens are drawn like other matrices."""
    feedforward: Annotated[str, one_of(FEED_FORWARDS, "feed-forward")] = "gelu"
    """The bend between the two maps of a feed-forward."""
    positions: Annotated[str, one_of(POSITIONS, "position scheme")] = "rotary"
    """How a token knows where it stands."""
    window: int | None = Field(None, ge=1)
    """Attention looks at positions fewer than this many steps away; everywhere before it if not given."""
    tied: bool = True
    """The output layer uses the table of the embedding."""
    output_bias: bool = False
    """Add a trained number to the score of each entry of the vocabulary."""
    scale_embeddings: bool = True
    """Multiply embeddings by the square root of dim."""
    max_len: int = Field(256, ge=2)
    """How many tokens the model sees at once, at most: what is trained on, and what the cache holds."""
    kernel: Annotated[str, one_of(KERNELS, "kernel")] = "auto"
    """How attention is computed."""


class GptState(NamedTuple):
    """What generation carries from step to step: what is seen, and the keys and values of it."""

    cache: StackCache
    seen: Int[Tensor, "rows time"]

    def select(self, rows: Int[Tensor, "kept"]) -> GptState:
        """These rows, in this order."""
        return GptState(self.cache.select(rows), self.seen.index_select(0, rows))


class Gpt(Model):
    """A decoder that reads a text and says at each place what may come next.

    A text longer than `max_len` is seen through a window that slides by quarters of it. When the cache is full, the
    oldest quarter is dropped and the rest is read anew, as if the text began there: so every position scheme stays
    within what it was trained on, and a step sees exactly what `forward` sees of `ids[:, first_seen(length):]`.
    """

    Config = GptConfig
    config: GptConfig
    generates: ClassVar[bool] = True

    def __init__(self, config: GptConfig) -> None:
        super().__init__(config)
        if not config.vocab_size:
            raise ConfigError("a language model needs vocab_size: it comes from the tokenizer")
        self.embedding = TokenEmbedding(config.vocab_size, config.dim, scaled=config.scale_embeddings)
        self.decoder = build_stack(
            dim=config.dim,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            ff_dim=config.ff_dim,
            num_layers=config.num_layers,
            max_len=config.max_len,
            norm=config.norm,
            norm_eps=config.norm_eps,
            residual=config.residual,
            feedforward=config.feedforward,
            positions=config.positions,
            kernel=config.kernel,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            window=config.window,
            causal=True,
            heads=config.decoder_heads,
        )
        self.output = OutputLayer(
            config.dim, config.vocab_size, self.embedding if config.tied else None, biased=config.output_bias
        )
        initialise(self, config.start)

    def hidden(
        self, ids: Int[Tensor, "batch time"], real: Bool[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        """What the output layer sees at each position; padding stands on the right, `real` marks what is none."""
        return self.decoder(self.embedding(ids), real=real)

    def forward(
        self, ids: Int[Tensor, "batch time"], real: Bool[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch time vocab"]:
        """The logits of the token after each position."""
        return self.output(self.hidden(ids, real))

    def first_seen(self, length: int) -> int:
        """Where the part of a text of this length begins that is seen when the next token is asked for.

        It depends on the length alone, and not on what was prompt and what was generated.
        """
        stride = max(1, self.config.max_len // 4)
        return max(0, -(-(length - self.config.max_len) // stride)) * stride

    def start(self, ids: Int[Tensor, "rows time"]) -> GptState:
        """Read texts of one length, or nothing yet; what comes back is carried from step to step."""
        seen = ids[:, self.first_seen(ids.shape[1]) :]
        cache = self.decoder.new_cache()
        if seen.shape[1]:
            self.decoder(self.embedding(seen), cache=cache)
        return GptState(cache, seen)

    def step(self, ids: Int[Tensor, "rows"], state: GptState) -> tuple[Float[Tensor, "rows vocab"], GptState]:
        """Feed the newest token of each row; the logits of the next one come back."""
        seen, cache, fresh = torch.cat((state.seen, ids[:, None]), 1), state.cache, ids[:, None]
        if seen.shape[1] > self.config.max_len:
            seen = seen[:, self.first_seen(seen.shape[1]) :]
            cache, fresh = self.decoder.new_cache(), seen
        x = self.decoder(self.embedding(fresh), cache=cache)
        return self.output(x[:, -1]), GptState(cache, seen)
