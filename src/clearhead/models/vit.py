"""Pictures in, one score for each label out: the Vision Transformer (Dosovitskiy et al. 2021)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from jaxtyping import Float, UInt8
from pydantic import Field
from torch import Tensor, nn

from clearhead.config import one_of
from clearhead.errors import ConfigError, choose
from clearhead.models.model import Model, ModelConfig
from clearhead.models.reduction import ReduceConfig
from clearhead.nn.dropout import Dropout
from clearhead.nn.feedforward import FEED_FORWARDS
from clearhead.nn.initialise import STARTS, initialise
from clearhead.nn.kernels import KERNELS
from clearhead.nn.norms import NORMS
from clearhead.nn.patches import GRIDS, STEMS, ClassToken
from clearhead.nn.pooling import POOLINGS
from clearhead.nn.residual import RESIDUALS
from clearhead.nn.stacks import build_stack
from clearhead.nn.tokens import Tokens


class VitConfig(ModelConfig):
    """The shape of a Vision Transformer."""

    kind: Annotated[str, one_of(["vit"], "model")] = "vit"
    """Which model this is."""
    labels: list[str] = Field([])
    """The labels; filled in from the data."""
    height: int = Field(0, ge=0)
    """Of every picture, in pixels; filled in from the data."""
    width: int = Field(0, ge=0)
    """Of every picture, in pixels; filled in from the data."""
    channels: int = Field(0, ge=0)
    """1 for grey pictures, 3 for coloured ones; filled in from the data."""
    mean: list[float] = Field([])
    """The mean of each channel, from 0 to 1, which is taken off; filled in from the data."""
    spread: list[float] = Field([])
    """The standard deviation of each channel, which is divided by; filled in from the data."""
    patch: int = Field(4, ge=1)
    """The side of a patch in pixels: smaller ones see more and take longer."""
    stem: Annotated[str, one_of(STEMS, "stem")] = "linear"
    """How pixels become a patch's vector: linear (one map for all of the patch), convolutions, which see a little
    beyond it and learn sooner, or deep (twice as many and as wide)."""
    dim: int = Field(96, ge=1)
    """Width of the model."""
    ff_dim: int = Field(192, ge=1)
    """Inner width of the feed-forwards."""
    num_heads: int = Field(4, ge=1)
    """Attention heads."""
    num_kv_heads: int | None = Field(None, ge=1)
    """Heads of keys and values: as many as num_heads if not given, fewer for grouped-query, one for multi-query."""
    encoder_heads: list[list[int]] | None = None
    """For each layer which of its num_heads there are, counted from 0, where some were pruned; else all."""
    num_layers: int = Field(6, ge=1)
    """Depth."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Share of features that are dropped while training."""
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of attention weights that are dropped while training."""
    norm: Annotated[str, one_of(NORMS, "norm")] = "layer"
    """Which norm."""
    norm_eps: float | None = Field(None, gt=0)
    """What norms add to a variance before they divide by its root; each norm's own number if not given."""
    residual: Annotated[str, one_of(RESIDUALS, "residual arrangement")] = "pre"
    """Where the norm stands: before each sublayer, after it, or with no way around the sublayer at all."""
    start: Annotated[str, one_of(STARTS, "start")] = "glorot"
    """The first weights: glorot; still, where sublayers add nothing at first (quicker to learn with norms before
    them); or annotated, where tables of tokens are drawn like other matrices."""
    feedforward: Annotated[str, one_of(FEED_FORWARDS, "feed-forward")] = "gelu"
    """The bend between the two maps of a feed-forward."""
    positions: Annotated[str, one_of(GRIDS, "position scheme")] = "learned"
    """How a patch knows where it stands: learned, sinusoidal (waves down and across), none."""
    pooling: Annotated[str, one_of(POOLINGS, "pooling")] = "first"
    """What the answer is read from: first (a class token in front of the patches), first_tanh (the same through one
    more map), mean (of all patches), attention."""
    max_len: int = Field(0, ge=0)
    """How many tokens a picture is; filled in from its size."""
    kernel: Annotated[str, one_of(KERNELS, "kernel")] = "auto"
    """How attention is computed."""
    reduce: ReduceConfig = ReduceConfig()
    """How its tokens become fewer."""

    @property
    def rows(self) -> int:
        """Patches from top to bottom."""
        return self.height // self.patch

    @property
    def columns(self) -> int:
        """Patches from left to right."""
        return self.width // self.patch

    @property
    def has_class_token(self) -> bool:
        """Whether a token stands in front of the patches."""
        return POOLINGS[self.pooling].is_first

    @property
    def num_tokens(self) -> int:
        """How many tokens a picture is: its patches, and perhaps the class token."""
        return self.rows * self.columns + self.has_class_token


class Vit(Model):
    """Patches as tokens, an encoder, one vector made of all of them, a linear map to the labels."""

    Config = VitConfig
    config: VitConfig
    reads_text: ClassVar[bool] = False

    def __init__(self, config: VitConfig) -> None:
        _check(config)
        config = config.model_copy(update={"max_len": config.num_tokens})
        super().__init__(config)
        self.patches = choose(STEMS, config.stem, "stem")(config.channels, config.dim, config.patch)
        self.grid = choose(GRIDS, config.positions, "position scheme")(config.dim, config.rows, config.columns)
        self.class_token = ClassToken(config.dim) if config.has_class_token else None
        self.encoder = build_stack(
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
            positions="none",
            kernel=config.kernel,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            heads=config.encoder_heads,
            reductions=config.reduce.reductions(config.num_layers),
        )
        self.pooling = choose(POOLINGS, config.pooling, "pooling")(config.dim)
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(config.dim, len(config.labels))
        self.mean: Tensor
        self.spread: Tensor
        for name in ("mean", "spread"):
            self.register_buffer(name, torch.tensor(getattr(config, name))[:, None, None], persistent=False)
        initialise(self, config.start)

    def encode(self, pictures: UInt8[Tensor, "batch channels height width"]) -> Tokens:
        """Look at pictures, whose values go from 0 to 255; what comes back may be fewer tokens than patches."""
        pixels = (pictures.to(self.mean.dtype) / 255 - self.mean) / self.spread
        x = self.grid(self.patches(pixels))
        if self.class_token is None:
            return self.encoder.run(Tokens(x))
        x = self.class_token(x)
        is_first = torch.arange(x.shape[1], device=x.device) == 0
        return self.encoder.run(Tokens(x, special=is_first.expand(x.shape[:2])))

    def answer(self, tokens: Tokens) -> Float[Tensor, "batch labels"]:
        """The logits of what `encode` saw."""
        return self.output(self.dropout(self.pooling(tokens.x, tokens.real, tokens.counts)))

    def forward(self, pictures: UInt8[Tensor, "batch channels height width"]) -> Float[Tensor, "batch labels"]:
        """The logits of each picture's labels."""
        return self.answer(self.encode(pictures))


def _check(config: VitConfig) -> None:
    if len(config.labels) < 2 or not config.height or not config.width or not config.channels:
        raise ConfigError("a ViT needs at least two labels and the size of its pictures: they come from the data")
    if len(config.mean) != config.channels or len(config.spread) != config.channels:
        raise ConfigError(
            f"a ViT needs mean and spread for each of {config.channels} channels: they come from the data"
        )
    if config.height % config.patch or config.width % config.patch:
        fitting = [str(side) for side in range(1, 33) if not config.height % side and not config.width % side]
        raise ConfigError(
            f"pictures of {config.height} x {config.width} cannot be cut into patches of {config.patch} x "
            f"{config.patch}: set model.patch to one of {', '.join(fitting)}"
        )
