"""Embedded tokens in, contextual vectors out: blocks of attention and feed-forward, and the builder that wires them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from clearhead.errors import ConfigError, DataError, choose
from clearhead.nn import masks
from clearhead.nn.attention import Attention
from clearhead.nn.cache import BlockCache, KeyValueCache, KeyValues, Seats, StackCache
from clearhead.nn.dropout import Dropout
from clearhead.nn.feedforward import FEED_FORWARDS, FeedForward
from clearhead.nn.gapless import Gapless
from clearhead.nn.linear import is_narrow, rounded_rows
from clearhead.nn.norms import NORMS, Norm
from clearhead.nn.positions import POSITIONS, Positions
from clearhead.nn.reduction import Reduction
from clearhead.nn.residual import RESIDUALS, Residual
from clearhead.nn.tokens import Tokens


class Block(nn.Module):
    """Look at oneself, look across where there is something to look at, think."""

    def __init__(
        self,
        attention: Attention,
        feedforward: FeedForward,
        around: Callable[[], Residual],
        cross: Attention | None = None,
        reduction: Reduction | None = None,
    ) -> None:
        super().__init__()
        self.attention, self.around_attention = attention, around()
        self.reduction = reduction or Reduction(layer=0, num_layers=1)
        self.cross = cross
        self.around_cross = around() if cross is not None else None
        self.feedforward, self.around_feedforward = feedforward, around()

    def forward(
        self,
        tokens: Tokens,
        *,
        allowed: Bool[Tensor, "#batch #heads #time key"] | None = None,
        causal: bool = False,
        positions: Positions | None = None,
        context: Float[Tensor, "rows others dim"] | None = None,
        context_allowed: Bool[Tensor, "memories 1 1 source"] | None = None,
        context_bias: Float[Tensor, "memories 1 1 source"] | None = None,
        context_gapless: Gapless | None = None,
        cache: BlockCache | None = None,
        seats: Seats | None = None,
    ) -> Tokens:
        past = cache.attention if cache is not None else None
        own = {"allowed": allowed, "bias": tokens.bias, "causal": causal, "positions": positions, "at": tokens.at}
        witness = self.reduction.witness(tokens)
        x = self.around_attention(
            tokens.x,
            lambda h: self.attention(h, **own, cache=past, witness=witness, gapless=tokens.gapless),
            tokens.real,
        )
        tokens = self.reduction(tokens._replace(x=x), witness)
        x, real = tokens.x, tokens.real
        if self.cross is not None and self.around_cross is not None:
            cross, seen = self.cross, cache.cross if cache is not None and cache.cross is not None else context
            if seen is None:
                # Without it the same attention would look at its own sequence, future included, and nobody would know.
                raise DataError("these blocks look across at a context: give one, or a cache that was made with one")
            other = {"allowed": context_allowed, "bias": context_bias, "seats": seats}
            lying = {"gapless": tokens.gapless, "context_gapless": context_gapless}
            x = self.around_cross(x, lambda h: cross(h, seen, **other, **lying), real)
        return tokens._replace(x=self.around_feedforward(x, self.feedforward, real))


class Stack(nn.Module):
    """Positions, perhaps a norm, then blocks, then the norm that the residual arrangement may ask for."""

    skips_padding = True
    """Whether, while training on a CPU, only attention sees padding."""

    def __init__(
        self,
        blocks: list[Block],
        positions: Positions,
        final_norm: Norm | None,
        *,
        first_norm: Norm | None = None,
        dropout: float = 0.0,
        causal: bool = False,
        window: int | None = None,
    ) -> None:
        super().__init__()
        self.positions = positions
        self.first_norm = first_norm
        self.dropout = Dropout(dropout)
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = final_norm
        self.causal, self.window = causal, window
        self.num_heads = blocks[0].attention.num_heads if blocks else 1
        self.mixes_time = any(isinstance(module, Norm) and module.mixes_time for module in self.modules())

    def forward(
        self,
        x: Float[Tensor, "batch time dim"],
        *,
        real: Bool[Tensor, "batch time"] | None = None,
        context: Float[Tensor, "batch source dim"] | None = None,
        context_real: Bool[Tensor, "batch source"] | None = None,
        cache: StackCache | None = None,
        texts: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch time dim"]:
        """Run the stack; `real` marks the tokens of `x` that are not padding, None when all are.

        Where several texts share a row, `texts` numbers the one each token belongs to: none sees another, and each
        begins at the first position, as if it were alone.
        What was said about the context when the cache was made holds for all steps, and need not be said again.
        """
        seen = None if context is None else Tokens(context, context_real)
        return self.run(Tokens(x, real), context=seen, cache=cache, texts=texts).x

    def run(
        self,
        tokens: Tokens,
        *,
        context: Tokens | None = None,
        cache: StackCache | None = None,
        texts: Int[Tensor, "batch time"] | None = None,
    ) -> Tokens:
        """The same for those who must know what became of the tokens, if there may be fewer."""
        offset = cache.length if cache is not None else 0
        places = None if texts is None else self._places(texts)
        tokens = tokens._replace(x=self.positions.embed(tokens.x, offset, places))
        if cache is None and texts is None and self._gains_without_padding(tokens, context):
            tokens, context = self._without_padding(tokens, context)
        allowed = self._allowed(tokens, offset)
        if texts is not None:
            allowed = masks.both(allowed, masks.same_text(texts))
        context_real, context_bias = (None, None) if context is None else (context.visible, context.bias)
        if cache is not None and cache.remembers:
            context_real, context_bias = cache.context_real, cache.context_bias
        x = tokens.x if self.first_norm is None else self.first_norm(tokens.x, tokens.real)
        tokens = tokens._replace(x=self.dropout(x))
        for index, block in enumerate(self.blocks):
            before = tokens.real
            tokens = block(
                tokens,
                allowed=allowed,
                causal=self.causal,
                positions=self.positions,
                context=None if context is None else context.x,
                context_allowed=masks.padding(context_real) if context_real is not None else None,
                context_bias=context_bias,
                context_gapless=None if context is None else context.gapless,
                cache=cache.blocks[index] if cache is not None else None,
                seats=cache.seats if cache is not None else None,
            )
            if tokens.real is not before:
                allowed = self._allowed(tokens, offset)
        if self.final_norm is not None:
            tokens = tokens._replace(x=self.final_norm(tokens.x, tokens.real))
        return tokens.opened()

    def _places(self, texts: Int[Tensor, "batch time"]) -> Int[Tensor, "batch time"]:
        """Where each token stands in its text, if several texts may share a row here."""
        if self.reduces:
            raise ConfigError("tokens cannot become fewer where several texts share a row: leave out one of the two")
        if self.mixes_time:
            raise ConfigError("texts that share a row would see each other through these norms: choose another")
        return masks.places_in_text(texts)

    def _gains_without_padding(self, tokens: Tokens, context: Tokens | None) -> bool:
        """Whether there is any, and all but attention can do without it, while training on a CPU.

        That it trains is asked first: an exporter must not see a choice that depends on what is padding.
        """
        trains = torch.is_grad_enabled() and tokens.x.requires_grad and tokens.x.device.type == "cpu"
        if not (self.skips_padding and trains):
            return False
        streams = [tokens] if context is None else [tokens, context]
        is_padded = any(stream.real is not None for stream in streams)
        is_plain = all(stream.counts is None for stream in streams) and not self.reduces and not self.mixes_time
        return is_padded and is_plain

    def _without_padding(self, tokens: Tokens, context: Tokens | None) -> tuple[Tokens, Tokens | None]:
        """Both streams as tokens one after the other, of as many sequences; in bf16 of a number that is fast."""
        batch, num_heads = len(tokens.x), self.num_heads
        rows = rounded_rows(batch * num_heads) if is_narrow(tokens.x) else batch * num_heads
        sequences = batch if rows % num_heads else rows // num_heads
        return tokens.closed(sequences), None if context is None else context.closed(sequences)

    def reduce_by(self, reductions: Sequence[Reduction]) -> None:
        """Let these reductions, one for each layer, take the place of those there are."""
        if len(reductions) != len(self.blocks):
            raise ConfigError(f"{len(reductions)} reductions for {len(self.blocks)} layers: give one for each")
        if any(map(_reduces, reductions)):
            if self.causal:
                raise ConfigError("a decoder's tokens cannot become fewer: each is asked for the next one")
            if self.window is not None:
                raise ConfigError("tokens that become fewer do not go with a window, which counts them: leave one out")
        device = self.blocks[0].get_parameter("attention.query.weight").device
        for block, reduction in zip(self.blocks, reductions, strict=True):
            block.reduction = reduction.train(self.training).to(device)

    @property
    def reduces(self) -> bool:
        """Whether tokens may become fewer on the way."""
        return any(_reduces(block.reduction) for block in self.blocks)

    def new_cache(self, context: Tokens | None = None, capacity: int = 16) -> StackCache:
        """An empty past, and for blocks that look across, the keys and values of what they look at."""
        seen = None if context is None else context.x
        blocks = tuple(
            BlockCache(KeyValueCache(capacity), self._remembered(block, seen))
            for block in self.blocks
            if isinstance(block, Block)
        )
        if context is None:
            return StackCache(blocks)
        return StackCache(blocks, context.real, context_bias=context.bias)

    @staticmethod
    def _remembered(block: Block, context: Tensor | None) -> KeyValues | None:
        if block.cross is None or context is None:
            return None
        # Looked at in every step: worth laying the heads apart once.
        return KeyValues(*(part.contiguous() for part in block.cross.remember(context)))

    def _allowed(self, tokens: Tokens, offset: int) -> Tensor | None:
        visible, query_len = tokens.visible, tokens.x.shape[1] if tokens.gapless is None else tokens.gapless.time
        key_len = offset + query_len
        allowed = None
        # Padding stands on the right, in the future of every real token: the causal mask hides it already.
        if visible is not None and not self.causal:
            allowed = masks.padding(visible)
        if self.window is not None:
            near = masks.sliding_window(query_len, key_len, self.window, tokens.x.device)[None, None]
            allowed = masks.both(allowed, near)
        return allowed


def _reduces(reduction: nn.Module | Tensor) -> bool:
    return type(reduction) is not Reduction


def build_stack(
    *,
    dim: int,
    num_heads: int,
    ff_dim: int,
    num_layers: int,
    max_len: int,
    num_kv_heads: int | None = None,
    norm: str = "layer",
    norm_eps: float | None = None,
    embedding_norm: bool = False,
    residual: str = "pre",
    feedforward: str = "relu",
    positions: str = "sinusoidal",
    kernel: str = "fused",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    projection_bias: bool = True,
    causal: bool = False,
    cross: bool = False,
    window: int | None = None,
    heads: Sequence[Sequence[int]] | None = None,
    cross_heads: Sequence[Sequence[int]] | None = None,
    reductions: Sequence[Reduction] | None = None,
) -> Stack:
    """Wire a stack from names in the tables; `causal` hides the future, `cross` adds attention to a context.

    `norm_eps` is what norms add to a variance, if not each its own; with `embedding_norm` the first one stands before
    the blocks. `heads` and `cross_heads` say for each layer which of its `num_heads` were left, where some were pruned;
    `reductions` are what makes its tokens fewer.
    """
    make_norm = choose(NORMS, norm, "norm")
    if causal and make_norm.mixes_time:
        fitting = ", ".join(sorted(name for name, kind in NORMS.items() if not kind.mixes_time))
        raise ConfigError(f"norm '{norm}' looks at later positions, which a decoder must not: choose from {fitting}")
    arrangement = choose(RESIDUALS, residual, "residual arrangement")

    for name, left in (("heads", heads), ("cross_heads", cross_heads)):
        if left is not None and len(left) != num_layers:
            raise ConfigError(f"{name} must have one list for each of {num_layers} layers, not {len(left)}")

    def new_norm() -> Norm:
        return make_norm(dim) if norm_eps is None else make_norm(dim, norm_eps)

    def attention(left: Sequence[int] | None) -> Attention:
        return Attention(
            dim,
            num_heads,
            num_kv_heads=num_kv_heads,
            heads=left,
            projection_bias=projection_bias,
            dropout=attention_dropout,
            kernel=kernel,
        )

    blocks = [
        Block(
            attention(heads[layer] if heads is not None else None),
            choose(FEED_FORWARDS, feedforward, "feed-forward")(dim, ff_dim, dropout),
            lambda: arrangement(new_norm(), dropout),
            attention(cross_heads[layer] if cross_heads is not None else None) if cross else None,
        )
        for layer in range(num_layers)
    ]
    scheme = choose(POSITIONS, positions, "position scheme")(
        dim=dim, num_heads=num_heads, head_dim=dim // num_heads, max_len=max_len
    )
    first_norm = new_norm() if embedding_norm else None
    final_norm = new_norm() if arrangement.needs_final_norm else None
    stack = Stack(blocks, scheme, final_norm, first_norm=first_norm, dropout=dropout, causal=causal, window=window)
    if reductions is not None:
        stack.reduce_by(reductions)
    return stack
