"""Embeddings and output layers: scale, lookup, and one table for two jobs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from clearhead.nn.embedding import TIES, OutputLayer, TokenEmbedding
from clearhead.nn.initialise import initialise

VOCAB, DIM = 11, 16


@pytest.mark.parametrize(("scaled", "scale"), [(True, math.sqrt(DIM)), (False, 1.0)])
def test_a_token_becomes_its_row_scaled_or_not(scaled: bool, scale: float) -> None:
    embedding = TokenEmbedding(VOCAB, DIM, scaled=scaled)
    initialise(embedding)
    ids = torch.tensor([[3, 0, 10], [5, 5, 1]])
    torch.testing.assert_close(embedding(ids), embedding.weight[ids] * scale)


def test_logits_are_products_with_every_row() -> None:
    output = OutputLayer(DIM, VOCAB)
    initialise(output)
    x = torch.randn(2, 3, DIM)
    torch.testing.assert_close(output(x), x @ output.weight.T)
    torch.testing.assert_close(output(x[:, -1]), output(x)[:, -1])


def test_a_tied_output_is_the_embeddings_own_parameter() -> None:
    embedding = TokenEmbedding(VOCAB, DIM)
    output = OutputLayer(DIM, VOCAB, tied_to=embedding)
    model = nn.ModuleList([embedding, output])
    assert output.weight is embedding.weight
    assert len(list(model.parameters())) == 1
    assert OutputLayer(DIM, VOCAB).weight is not embedding.weight
    initialise(model)
    output(embedding(torch.tensor([[3]]))).logsumexp(-1).sum().backward()
    assert (embedding.weight.grad.abs().sum(1) > 0).all(), "rows that were never looked up learn through the output"


def test_the_ties_are_named() -> None:
    assert TIES == ("none", "target", "all")
