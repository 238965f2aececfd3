"""Token ids with some hidden in, what the hidden ones are and whether one text follows the other out: BERT.

After "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding" (Devlin et al. 2019). What
stands in for a hidden token is a vector of its own and no entry of the vocabulary, so that no text can spell it, and a
classifier takes the embedding over as it is.
"""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from clearhead.config import one_of
from clearhead.errors import ConfigError
from clearhead.models.encoder import EncoderConfig, build_encoder
from clearhead.models.model import Model
from clearhead.models.reduction import ReduceConfig
from clearhead.nn.embedding import OutputLayer, TokenEmbedding
from clearhead.nn.initialise import initialise
from clearhead.nn.norms import LayerNorm
from clearhead.nn.tokens import Tokens, first_and_last

SEGMENTS = 2


class BertConfig(EncoderConfig):
    """The shape of a BERT."""

    kind: Annotated[str, one_of(["bert"], "model")] = "bert"
    """Which model this is."""
    next_sentence: bool = True
    """Show two segments, and ask whether the second follows the first in its document; else one, and hidden words
    alone are asked for."""
    num_segments: int | None = Field(None, ge=0)
    """Entries of the segment table; if not given 2 with next_sentence, else there is none."""
    fills_gaps: bool = True
    """Name hidden words; false where weights were imported that have no head for it."""
    output_bias: bool = False
    """Add a trained number to the score of each entry of the vocabulary."""
    reduce: ReduceConfig = ReduceConfig()
    """How its tokens become fewer; those that it is asked for never do."""

    @model_validator(mode="after")
    def _enough_segments(self) -> BertConfig:
        if self.next_sentence and self.segment_entries < SEGMENTS:
            raise ValueError(f"next_sentence needs num_segments of {SEGMENTS} or more, not {self.num_segments}")
        return self

    @property
    def segment_entries(self) -> int:
        """Entries of the segment table; 0 if there is none."""
        if self.num_segments is not None:
            return self.num_segments
        return SEGMENTS if self.next_sentence else 0


class Bert(Model):
    """An encoder that looks both ways, a head that names hidden tokens, and one that tells what belongs together."""

    Config = BertConfig
    config: BertConfig

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        if not config.vocab_size:
            raise ConfigError("a BERT needs vocab_size: it comes from the tokenizer")
        self.embedding = TokenEmbedding(config.vocab_size, config.dim, scaled=config.scale_embeddings)
        self.mask = TokenEmbedding(1, config.dim, scaled=config.scale_embeddings)
        entries, eps = config.segment_entries, {} if config.norm_eps is None else {"eps": config.norm_eps}
        self.segments = TokenEmbedding(entries, config.dim, scaled=False) if entries else None
        self.encoder = build_encoder(config, config.reduce.reductions(config.num_layers))
        if config.fills_gaps:
            self.transform, self.norm = nn.Linear(config.dim, config.dim), LayerNorm(config.dim, **eps)
            self.output = OutputLayer(config.dim, config.vocab_size, self.embedding, biased=config.output_bias)
        self.pooler = nn.Linear(config.dim, config.dim) if config.next_sentence else None
        self.next = nn.Linear(config.dim, 2) if config.next_sentence else None
        initialise(self, config.start)

    def encode(
        self,
        ids: Int[Tensor, "batch time"],
        hidden: Bool[Tensor, "batch time"] | None = None,
        segments: Int[Tensor, "batch time"] | None = None,
        *,
        real: Bool[Tensor, "batch time"] | None = None,
        texts: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch time dim"]:
        """Read; what is `hidden` is not looked at, no `segments` are all the first, `texts` in one row stay apart.

        Where tokens became fewer, each comes back as the one that it is in.
        """
        return self.read(ids, hidden, segments, real=real, texts=texts).spread()

    def read(
        self,
        ids: Int[Tensor, "batch time"],
        hidden: Bool[Tensor, "batch time"] | None = None,
        segments: Int[Tensor, "batch time"] | None = None,
        *,
        real: Bool[Tensor, "batch time"] | None = None,
        texts: Int[Tensor, "batch time"] | None = None,
        asked: Bool[Tensor, "batch time"] | None = None,
    ) -> Tokens:
        """The same for those who must know what became of the tokens; those `asked` for stay, like those `hidden`."""
        x = self.embedding(ids)
        if hidden is not None:
            x = torch.where(hidden[..., None], self.mask(torch.zeros_like(ids[:1, :1])), x)
        if self.segments is not None:
            x = x + (self.segments.weight[0] if segments is None else self.segments(segments))
        if not self.encoder.reduces:
            return self.encoder.run(Tokens(x, real), texts=texts)
        special = first_and_last(x, real)
        for kept in (hidden, asked, None if segments is None else _ends_of_first(segments)):
            special = special if kept is None else special | kept
        return self.encoder.run(Tokens(x, real, special), texts=texts)

    def words(self, x: Float[Tensor, "tokens dim"]) -> Float[Tensor, "tokens dim"]:
        """What the output layer sees of some positions."""
        if not self.config.fills_gaps:
            raise ConfigError(
                "this BERT has no head that names hidden words (fills_gaps = false): look inside it, or train a "
                "classifier on it"
            )
        return self.norm(F.gelu(self.transform(x))[None])[0]

    def named(self, x: Float[Tensor, "tokens dim"]) -> Float[Tensor, "tokens vocab"]:
        """The logits of the tokens at some positions."""
        words = self.words(x)
        return self.output(words)

    def follows(self, x: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows 2"]:
        """From the first position of each text: the logits that its second segment does not, or does, follow."""
        if self.pooler is None or self.next is None:
            raise ConfigError("this BERT was made with next_sentence = false: it cannot tell what follows")
        return self.next(torch.tanh(self.pooler(x)))

    def forward(
        self,
        ids: Int[Tensor, "batch time"],
        hidden: Bool[Tensor, "batch time"] | None = None,
        segments: Int[Tensor, "batch time"] | None = None,
        *,
        real: Bool[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch time vocab"]:
        """The logits of the token at each position."""
        x = self.encode(ids, hidden, segments, real=real)
        return self.named(x.flatten(0, 1)).unflatten(0, ids.shape)


def _ends_of_first(segments: Int[Tensor, "batch time"]) -> Bool[Tensor, "batch time"]:
    """Where the next token is the first of the second segment: the control token between the two."""
    found = torch.zeros_like(segments, dtype=torch.bool)
    found[:, :-1] = segments[:, 1:] > segments[:, :-1]
    return found
