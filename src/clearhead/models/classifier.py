"""Token ids in, one score for each label out: an encoder, one vector made of all its positions, a linear map."""

from __future__ import annotations

from typing import Annotated

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from clearhead.config import one_of
from clearhead.errors import ConfigError, choose
from clearhead.models.encoder import EncoderConfig, build_encoder
from clearhead.models.model import Model
from clearhead.models.reduction import ReduceConfig
from clearhead.nn.dropout import Dropout
from clearhead.nn.embedding import TokenEmbedding
from clearhead.nn.initialise import initialise
from clearhead.nn.pooling import POOLINGS
from clearhead.nn.tokens import Tokens, first_and_last


class ClassifierConfig(EncoderConfig):
    """The shape of a classifier."""

    kind: Annotated[str, one_of(["classifier"], "model")] = "classifier"
    """Which model this is."""
    labels: list[str] = Field(default=[])
    """The labels, sorted; filled in from the data."""
    pooling: Annotated[str, one_of(POOLINGS, "pooling")] = "mean"
    """How the vectors of all tokens become one: mean, first (the token that every text begins with), first_tanh (the
    same through one more map, as in BERT), attention."""
    long_texts: Annotated[str, one_of(["ends", "windows"], "way to read long texts")] = "ends"
    """What is read of a text with more than max_len tokens: its beginning and its end, or all of it in windows that
    overlap by a quarter, whose probabilities are averaged (in training, one window drawn each time)."""
    head: float = Field(0.25, ge=0, le=1)
    """With long_texts = "ends": how much of what is read comes from the beginning of the text."""
    reduce: ReduceConfig = ReduceConfig()
    """How its tokens become fewer."""
    num_segments: int = Field(0, ge=0)
    """Entries of a segment table, whose first is added to every token: 2 if the weights come from a BERT that knows
    two segments, else 0."""


class Classifier(Model):
    """An encoder that reads a text, and a linear map from the mean of what it made of it to the labels."""

    Config = ClassifierConfig
    config: ClassifierConfig

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__(config)
        if not config.vocab_size or len(config.labels) < 2:
            raise ConfigError("a classifier needs vocab_size and at least two labels: they come from the data")
        self.embedding = TokenEmbedding(config.vocab_size, config.dim, scaled=config.scale_embeddings)
        self.segments = TokenEmbedding(config.num_segments, config.dim, scaled=False) if config.num_segments else None
        self.encoder = build_encoder(config, config.reduce.reductions(config.num_layers))
        self.pooling = choose(POOLINGS, config.pooling, "pooling")(config.dim)
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(config.dim, len(config.labels))
        initialise(self, config.start)

    def encode(self, ids: Int[Tensor, "batch time"], real: Bool[Tensor, "batch time"] | None = None) -> Tokens:
        """Read texts; `real` marks what is not padding, None when nothing is. Fewer tokens may come back."""
        x = self.embedding(ids)
        if self.segments is not None:
            x = x + self.segments.weight[0]
        return self.encoder.run(Tokens(x, real, first_and_last(x, real)))

    def answer(self, tokens: Tokens) -> Float[Tensor, "batch labels"]:
        """The logits of what `encode` read."""
        return self.output(self.dropout(self.pooling(tokens.x, tokens.real, tokens.counts)))

    def forward(
        self, ids: Int[Tensor, "batch time"], real: Bool[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch labels"]:
        """The logits of each text's labels."""
        return self.answer(self.encode(ids, real))


def joined(
    logits: Float[Tensor, "pieces labels"], owners: Int[Tensor, "pieces"], count: int
) -> Float[Tensor, "{count} labels"]:
    """The logarithm of the mean probabilities of each text's pieces; `owners` says which text a piece is of."""
    probs = logits.float().softmax(-1)
    total = probs.new_zeros(count, logits.shape[1]).index_add(0, owners, probs)
    mean = total / torch.bincount(owners, minlength=count)[:, None]
    # The smallest number and not zero, whose logarithm is not finite.
    return mean.clamp(min=torch.finfo(mean.dtype).tiny).log()
