"""A size in, a Transformer out, put together the way tutorials do: the manner of The Annotated Transformer.

Written for the comparison, not for use: every sublayer is its own small module, the mask is applied to scores that
exist, log-probabilities of the whole vocabulary are made for every position, and each label becomes a row of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from clearhead.bench.sizes import Size
from clearhead.text.specials import PAD_ID

LONGEST = 256


class Norm(nn.Module):
    """Mean and standard deviation of each position, spelled out."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.bias


class MultiHead(nn.Module):
    """Four linear maps, and scores that exist."""

    def __init__(self, dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.maps = nn.ModuleList(nn.Linear(dim, dim) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, query: Tensor, memory: Tensor, allowed: Tensor) -> Tensor:
        batch = query.shape[0]
        heads = [
            linear(x).view(batch, -1, self.num_heads, x.shape[-1] // self.num_heads).transpose(1, 2)
            for linear, x in zip(self.maps, (query, memory, memory), strict=False)
        ]
        scores = heads[0] @ heads[1].transpose(-2, -1) / math.sqrt(heads[0].shape[-1])
        weights = self.dropout(scores.masked_fill(~allowed, -1e9).softmax(-1))
        mixed = (weights @ heads[2]).transpose(1, 2).contiguous().view(batch, -1, query.shape[-1])
        return self.maps[3](mixed)


class Sublayer(nn.Module):
    """Norm first, then the sublayer, dropout, and the way around."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.dropout = Norm(dim), nn.Dropout(dropout)

    def forward(self, x: Tensor, inner: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(inner(self.norm(x)))


class Layer(nn.Module):
    """Self-attention, in a decoder attention to the memory, and a feed-forward."""

    def __init__(self, size: Size, *, cross: bool) -> None:
        super().__init__()
        self.attention = MultiHead(size.dim, size.num_heads, size.dropout)
        self.cross = MultiHead(size.dim, size.num_heads, size.dropout) if cross else None
        self.feedforward = nn.Sequential(
            nn.Linear(size.dim, size.ff_dim), nn.ReLU(), nn.Dropout(size.dropout), nn.Linear(size.ff_dim, size.dim)
        )
        self.around = nn.ModuleList(Sublayer(size.dim, size.dropout) for _ in range(3 if cross else 2))

    def forward(self, x: Tensor, allowed: Tensor, memory: Tensor, memory_allowed: Tensor) -> Tensor:
        x = self.around[0](x, lambda h: self.attention(h, h, allowed))
        if self.cross is not None:
            cross = self.cross
            x = self.around[1](x, lambda h: cross(h, memory, memory_allowed))
        return self.around[-1](x, self.feedforward)


class Embedding(nn.Module):
    """Tokens, scaled, with sinusoidal positions."""

    def __init__(self, vocab_size: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.table, self.dropout, self.scale = nn.Embedding(vocab_size, dim), nn.Dropout(dropout), math.sqrt(dim)
        angle = torch.arange(LONGEST)[:, None] * torch.exp(torch.arange(0, dim, 2) * (-math.log(1e4) / dim))
        self.positions: Tensor
        self.register_buffer("positions", torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[None])

    def forward(self, ids: Tensor) -> Tensor:
        return self.dropout(self.table(ids) * self.scale + self.positions[:, : ids.shape[1]])


class TutorialTranslator(nn.Module):
    """Encoder, decoder, and log-probabilities for every position."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.source = Embedding(size.source_vocab_size, size.dim, size.dropout)
        self.target = Embedding(size.target_vocab_size, size.dim, size.dropout)
        self.encoder = nn.ModuleList(Layer(size, cross=False) for _ in range(size.num_layers))
        self.decoder = nn.ModuleList(Layer(size, cross=True) for _ in range(size.num_layers))
        self.encoder_norm, self.decoder_norm = Norm(size.dim), Norm(size.dim)
        self.output = nn.Linear(size.dim, size.target_vocab_size)
        if size.joint:
            self.target.table.weight = self.source.table.weight
            self.output.weight = self.source.table.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source_allowed = (source != PAD_ID)[:, None, None, :]
        past = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
        target_allowed = (target != PAD_ID)[:, None, None, :] & past
        memory = self.source(source)
        for layer in self.encoder:
            memory = layer(memory, source_allowed, memory, source_allowed)
        memory = self.encoder_norm(memory)
        x = self.target(target)
        for layer in self.decoder:
            x = layer(x, target_allowed, memory, source_allowed)
        return self.output(self.decoder_norm(x)).log_softmax(-1)


class LabelSmoothing(nn.Module):
    """A row of probabilities for every label, and the divergence from it."""

    def __init__(self, vocab_size: int, smoothing: float) -> None:
        super().__init__()
        self.criterion = nn.KLDivLoss(reduction="sum")
        self.vocab_size, self.smoothing = vocab_size, smoothing

    def forward(self, log_probs: Tensor, labels: Tensor) -> Tensor:
        rows, flat = log_probs.reshape(-1, self.vocab_size), labels.reshape(-1)
        wanted = torch.full_like(rows, self.smoothing / (self.vocab_size - 2))
        wanted.scatter_(1, flat[:, None], 1 - self.smoothing)
        wanted[:, PAD_ID] = 0
        wanted.masked_fill_((flat == PAD_ID)[:, None], 0.0)
        return self.criterion(rows, wanted)


def make_model(size: Size) -> TutorialTranslator:
    """A fresh model."""
    model = TutorialTranslator(size)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.xavier_uniform_(parameter)
    return model
