"""Source ids in, target logits out: the encoder-decoder of "Attention Is All You Need" (Vaswani et al. 2017)."""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from clearhead.config import one_of
from clearhead.errors import ConfigError
from clearhead.models.model import Model, ModelConfig
from clearhead.models.reduction import ReduceConfig
from clearhead.nn.cache import StackCache
from clearhead.nn.embedding import TIES, OutputLayer, TokenEmbedding
from clearhead.nn.feedforward import FEED_FORWARDS
from clearhead.nn.initialise import STARTS, initialise
from clearhead.nn.kernels import KERNELS
from clearhead.nn.norms import NORMS
from clearhead.nn.positions import POSITIONS
from clearhead.nn.reduction import Reduction
from clearhead.nn.residual import RESIDUALS
from clearhead.nn.stacks import Stack, build_stack
from clearhead.nn.tokens import Tokens, last


class TranslatorConfig(ModelConfig):
    """The shape of a translator."""

    kind: Annotated[str, one_of(["translator"], "model")] = "translator"
    """Which model this is."""
    source_vocab_size: int = Field(0, ge=0)
    """Entries of the source vocabulary; filled in from the tokenizer."""
    target_vocab_size: int = Field(0, ge=0)
    """Entries of the target vocabulary; filled in from the tokenizer."""
    dim: int = Field(256, ge=1)
    """Width of the model."""
    ff_dim: int = Field(1024, ge=1)
    """Inner width of the feed-forwards."""
    num_heads: int = Field(4, ge=1)
    """Attention heads."""
    num_kv_heads: int | None = Field(None, ge=1)
    """Heads of keys and values: as many as num_heads if not given, fewer for grouped-query, one for multi-query."""
    encoder_heads: list[list[int]] | None = None
    """For each encoder layer which of its num_heads there are, counted from 0, where some were pruned; else all."""
    decoder_heads: list[list[int]] | None = None
    """The same for the decoder's attention to itself."""
    cross_heads: list[list[int]] | None = None
    """The same for the decoder's attention to the source."""
    encoder_layers: int = Field(3, ge=1)
    """Depth of the encoder."""
    decoder_layers: int = Field(3, ge=1)
    """Depth of the decoder."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Share of features that are dropped while training."""
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of attention weights that are dropped while training."""
    norm: Annotated[str, one_of(NORMS, "norm")] = "layer"
    """The norm of the encoder, and of the decoder unless decoder_norm says otherwise."""
    decoder_norm: Annotated[str, one_of(NORMS, "norm")] | None = None
    """The norm of the decoder, where it differs."""
    residual: Annotated[str, one_of(RESIDUALS, "residual arrangement")] = "pre"
    """Where the norm stands: before each sublayer, after it, or with no way around the sublayer at all."""
    start: Annotated[str, one_of(STARTS, "start")] = "glorot"
    """The first weights: glorot; still, where sublayers add nothing at first (quicker to learn with norms before
    them); or annotated, where tables of tokens are drawn like other matrices."""
    feedforward: Annotated[str, one_of(FEED_FORWARDS, "feed-forward")] = "relu"
    """The bend between the two maps of a feed-forward."""
    positions: Annotated[str, one_of(POSITIONS, "position scheme")] = "sinusoidal"
    """How a token knows where it stands."""
    window: int | None = Field(None, ge=1)
    """Self-attention looks at positions fewer than this many steps away; everywhere if not given."""
    tie: Annotated[str, one_of(TIES, "way to tie embeddings")] = "target"
    """Which tables are one: none, target (target embedding with output), all (source as well)."""
    output_bias: bool = False
    """Whether the output layer adds a number of its own to each entry's score; Marian models have it."""
    scale_embeddings: bool = True
    """Multiply embeddings by the square root of dim."""
    max_len: int = Field(256, ge=2)
    """The longest sequence, in tokens, that the model is made for."""
    kernel: Annotated[str, one_of(KERNELS, "kernel")] = "auto"
    """How attention is computed."""
    reduce: ReduceConfig = ReduceConfig()
    """How the tokens of the source become fewer; its end never does."""


class TranslationState(NamedTuple):
    """What generation carries from step to step."""

    cache: StackCache

    def select(self, rows: Int[Tensor, "kept"]) -> TranslationState:
        """These rows, in this order; rows that come from one source row go on sharing what was read of it."""
        return TranslationState(self.cache.select(rows))


class Translator(Model):
    """An encoder that reads the source, and a decoder that writes the target while looking back at it."""

    Config = TranslatorConfig
    config: TranslatorConfig
    generates: ClassVar[bool] = True

    def __init__(self, config: TranslatorConfig) -> None:
        super().__init__(config)
        if not config.source_vocab_size or not config.target_vocab_size:
            raise ConfigError(
                "a translator needs source_vocab_size and target_vocab_size: they come from the tokenizer"
            )
        self.source_embedding = TokenEmbedding(config.source_vocab_size, config.dim, scaled=config.scale_embeddings)
        self.target_embedding = TokenEmbedding(config.target_vocab_size, config.dim, scaled=config.scale_embeddings)
        if config.tie == "all":
            if config.source_vocab_size != config.target_vocab_size:
                raise ConfigError("tie = 'all' needs one vocabulary for both sides: set tokenizer.joint = true")
            self.target_embedding.weight = self.source_embedding.weight
        self.output = OutputLayer(
            config.dim,
            config.target_vocab_size,
            self.target_embedding if config.tie != "none" else None,
            biased=config.output_bias,
        )
        reductions = config.reduce.reductions(config.encoder_layers)
        self.encoder = self._stack(config.encoder_layers, config.norm, config.encoder_heads, reductions)
        self.decoder = self._stack(
            config.decoder_layers, config.decoder_norm or config.norm, config.decoder_heads, causal=True, cross=True
        )
        initialise(self, config.start)

    def _stack(
        self,
        num_layers: int,
        norm: str,
        heads: list[list[int]] | None,
        reductions: list[Reduction] | None = None,
        *,
        causal: bool = False,
        cross: bool = False,
    ) -> Stack:
        config = self.config
        return build_stack(
            dim=config.dim,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            ff_dim=config.ff_dim,
            num_layers=num_layers,
            max_len=config.max_len,
            norm=norm,
            residual=config.residual,
            feedforward=config.feedforward,
            positions=config.positions,
            kernel=config.kernel,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            window=config.window,
            causal=causal,
            cross=cross,
            heads=heads,
            cross_heads=config.cross_heads if cross else None,
            reductions=reductions,
        )

    def encode(
        self, source: Int[Tensor, "batch source"], source_real: Bool[Tensor, "batch source"] | None = None
    ) -> Tokens:
        """Read the source; `source_real` marks what is not padding, if anything is. Fewer tokens may come back."""
        x = self.source_embedding(source)
        return self.encoder.run(Tokens(x, source_real, last(x, source_real) if self.encoder.reduces else None))

    def lead(
        self,
        memory: Tokens,
        target: Int[Tensor, "batch target"],
        target_real: Bool[Tensor, "batch target"] | None = None,
    ) -> Float[Tensor, "batch target dim"]:
        """What the output layer sees at each position of a target, while the decoder looks back at what was read."""
        return self.decoder.run(Tokens(self.target_embedding(target), target_real), context=memory).x

    def hidden(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch target"],
        source_real: Bool[Tensor, "batch source"] | None = None,
        target_real: Bool[Tensor, "batch target"] | None = None,
    ) -> Float[Tensor, "batch target dim"]:
        """What the output layer sees at each target position, given the target so far."""
        return self.lead(self.encode(source, source_real), target, target_real)

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch target"],
        source_real: Bool[Tensor, "batch source"] | None = None,
        target_real: Bool[Tensor, "batch target"] | None = None,
    ) -> Float[Tensor, "batch target vocab"]:
        """The logits of the token after each target position."""
        return self.output(self.hidden(source, target, source_real, target_real))

    def start(
        self, source: Int[Tensor, "rows source"], source_real: Bool[Tensor, "rows source"] | None = None
    ) -> TranslationState:
        """Read the source once; what comes back is carried from step to step."""
        return TranslationState(self.decoder.new_cache(self.encode(source, source_real)))

    def step(
        self, ids: Int[Tensor, "rows"], state: TranslationState
    ) -> tuple[Float[Tensor, "rows vocab"], TranslationState]:
        """Feed the newest token of each row; the logits of the next one come back."""
        x = self.decoder(self.target_embedding(ids[:, None]), cache=state.cache)
        return self.output(x[:, 0]), state
