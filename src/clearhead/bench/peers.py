"""A size in, a peer's model, optimizer and loss on a batch out: each as a user of that package would write it.

The peer is given what favours it where a choice is open: torch's cross-entropy, no clipping of gradients, and dropout
only where its own configuration has it. A new peer is one function and one line in PEERS.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.bench.sizes import Size
from clearhead.bench.tutorial import LabelSmoothing, make_model
from clearhead.text.specials import PAD_ID

SMOOTHING = 0.1
LONGEST = 256
LossOf = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Peer:
    """How one peer is built, and which package it needs."""

    build: Callable[[Size], Trainee]
    package: str
    padded: bool = False
    """Whether it trains on sentences padded to one length, and not on batches of similar ones."""


@dataclass(frozen=True)
class Trainee:
    """Something that can be trained: source and target ids give a loss."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: LossOf

    def step(self, source: Tensor, target: Tensor) -> None:
        """One optimizer step."""
        self.optimizer.zero_grad()
        self.loss(source, target).backward()
        self.optimizer.step()


def smoothed(logits: Tensor, labels: Tensor) -> Tensor:
    """torch's own cross-entropy with smoothed labels; padding does not count."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD_ID, label_smoothing=SMOOTHING)


class TorchTranslator(nn.Module):
    """`nn.Transformer` between embeddings with sinusoidal positions and an output layer, as torch's tutorial has it."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.scale = math.sqrt(size.dim)
        self.source = nn.Embedding(size.source_vocab_size, size.dim)
        self.target = self.source if size.joint else nn.Embedding(size.target_vocab_size, size.dim)
        self.dropout = nn.Dropout(size.dropout)
        self.transformer = nn.Transformer(
            size.dim, size.num_heads, size.num_layers, size.num_layers, size.ff_dim, size.dropout, batch_first=True
        )
        self.output = nn.Linear(size.dim, size.target_vocab_size)
        if size.joint:
            self.output.weight = self.target.weight
        angle = torch.arange(LONGEST)[:, None] * torch.exp(torch.arange(0, size.dim, 2) * (-math.log(1e4) / size.dim))
        self.positions: Tensor
        self.register_buffer("positions", torch.stack([angle.sin(), angle.cos()], -1).flatten(1))

    def embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        """Tokens with their positions."""
        return self.dropout(table(ids) * self.scale + self.positions[: ids.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        hidden_source, hidden_target = source == PAD_ID, target == PAD_ID
        future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        x = self.transformer(
            self.embed(self.source, source),
            self.embed(self.target, target),
            tgt_mask=future,
            src_key_padding_mask=hidden_source,
            tgt_key_padding_mask=hidden_target,
            memory_key_padding_mask=hidden_source,
        )
        return self.output(x)


def nn_transformer(size: Size) -> Trainee:
    """torch's own."""
    model = TorchTranslator(size)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.xavier_uniform_(parameter)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    return Trainee(model, optimizer, lambda source, target: smoothed(model(source, target[:, :-1]), target[:, 1:]))


def marian(size: Size) -> Trainee:
    """Hugging Face's Marian, with the optimizer that its Trainer takes by default."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=size.source_vocab_size,
        decoder_vocab_size=size.target_vocab_size,
        share_encoder_decoder_embeddings=size.joint,
        tie_word_embeddings=size.joint,
        d_model=size.dim,
        encoder_ffn_dim=size.ff_dim,
        decoder_ffn_dim=size.ff_dim,
        encoder_attention_heads=size.num_heads,
        decoder_attention_heads=size.num_heads,
        encoder_layers=size.num_layers,
        decoder_layers=size.num_layers,
        dropout=size.dropout,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=LONGEST,
        pad_token_id=PAD_ID,
        eos_token_id=1,
        decoder_start_token_id=0,
        use_cache=False,
    )
    model = MarianMTModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def loss(source: Tensor, target: Tensor) -> Tensor:
        inputs, mask = target[:, :-1], (source != PAD_ID).long()
        return smoothed(model(input_ids=source, attention_mask=mask, decoder_input_ids=inputs).logits, target[:, 1:])

    return Trainee(model, optimizer, loss)


def x_transformers(size: Size) -> Trainee:
    """x-transformers' encoder and decoder; its own wrapper has no smoothing, so logits go to torch's loss."""
    from x_transformers import XTransformer

    shape = {
        "depth": size.num_layers,
        "heads": size.num_heads,
        "attn_dim_head": size.dim // size.num_heads,
        "ff_mult": size.ff_dim / size.dim,
        "ff_dropout": size.dropout,
        "emb_dropout": size.dropout,
        "max_seq_len": LONGEST,
    }
    model = XTransformer(
        dim=size.dim,
        tie_token_emb=size.joint,
        pad_value=PAD_ID,
        ignore_index=PAD_ID,
        enc_num_tokens=size.source_vocab_size,
        dec_num_tokens=size.target_vocab_size,
        **{f"{side}_{name}": value for side in ("enc", "dec") for name, value in shape.items()},
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def loss(source: Tensor, target: Tensor) -> Tensor:
        mask = source != PAD_ID
        context = model.encoder(source, mask=mask, return_embeddings=True)
        return smoothed(model.decoder.net(target[:, :-1], context=context, context_mask=mask), target[:, 1:])

    return Trainee(model, optimizer, loss)


def tutorial(size: Size) -> Trainee:
    """The loop that most people learned from: everything padded to one length, all logits, a smoothed label a token."""
    model = make_model(size)
    criterion = LabelSmoothing(size.target_vocab_size, SMOOTHING)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)

    def loss(source: Tensor, target: Tensor) -> Tensor:
        inputs, labels = target[:, :-1], target[:, 1:]
        return criterion(model(source, inputs), labels) / (labels != PAD_ID).sum()

    return Trainee(model, optimizer, loss)


PEERS = {
    "torch.nn.Transformer": Peer(nn_transformer, "torch"),
    "Hugging Face Marian": Peer(marian, "transformers"),
    "x-transformers": Peer(x_transformers, "x_transformers"),
    "padded to 72, batches of 32": Peer(tutorial, "torch", padded=True),
}
