"""The laws of the classifier, over every member of every table it is wired from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.shared.weights import stir
from torch import Tensor

from clearhead.config import build
from clearhead.data.cutting import LONG_TEXTS
from clearhead.errors import ConfigError
from clearhead.models.classifier import Classifier, ClassifierConfig, joined
from clearhead.models.reduction import ReduceConfig
from clearhead.nn.feedforward import FEED_FORWARDS
from clearhead.nn.kernels import KERNELS
from clearhead.nn.norms import NORMS
from clearhead.nn.pooling import POOLINGS
from clearhead.nn.positions import POSITIONS
from clearhead.nn.residual import RESIDUALS

VOCAB, TIME = 11, 6
SMALL: dict[str, Any] = {
    "vocab_size": VOCAB, "labels": ["no", "perhaps", "yes"], "dim": 8, "ff_dim": 12, "num_heads": 2, "num_layers": 2,
    "dropout": 0.0, "max_len": 12,
}  # fmt: skip
REDUCED = [
    ReduceConfig(kind="merge", r=1),
    *(ReduceConfig(kind=kind, threshold=0.9) for kind in ("prune", "prune_hard")),
]
VARIANTS: list[dict[str, Any]] = [
    *({"norm": norm, "residual": residual} for norm in NORMS for residual in RESIDUALS),
    *({"positions": positions, "pooling": pooling} for positions in POSITIONS for pooling in POOLINGS),
    *({"kernel": kernel, "window": 2} for kernel in KERNELS),
    *({"feedforward": feedforward} for feedforward in FEED_FORWARDS),
    {"num_kv_heads": 1},
    {"num_segments": 2},
    {"scale_embeddings": False},
    {"embedding_norm": True, "norm_eps": 1e-2, "residual": "post"},
    # What the last layer learns to drop does not matter to the first token, but to the price alone.
    *({"reduce": how, "pooling": "mean"} for how in REDUCED),
    *({"reduce": how, "pooling": "attention"} for how in REDUCED),
]


def as_id(variant: dict[str, Any]) -> str:
    return "-".join(f"{name}-{value}" for name, value in variant.items())


def new(**settings: Any) -> Classifier:
    """A small one in double precision, so that laws hold to the last digits, every number of its own."""
    torch.manual_seed(0)
    model = Classifier(ClassifierConfig(**{**SMALL, **settings}))
    stir(model)
    return model.double().eval()


def ragged() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randint(4, VOCAB, (3, TIME)), torch.arange(TIME) < torch.tensor([[6], [4], [1]])


@pytest.mark.parametrize("variant", VARIANTS, ids=as_id)
def test_a_text_is_classified_alike_alone_and_padded_among_others(variant: dict[str, Any]) -> None:
    model, (ids, real) = new(**variant), ragged()
    together = model(ids, real)
    for row, length in enumerate(real.sum(1).tolist()):
        torch.testing.assert_close(together[row], model(ids[row : row + 1, :length])[0])


@pytest.mark.parametrize("variant", VARIANTS, ids=as_id)
def test_what_stands_in_padding_changes_nothing_forward_and_backward(variant: dict[str, Any]) -> None:
    model, (ids, real) = new(**variant), ragged()
    spoilt = torch.where(real, ids, torch.randint_like(ids, VOCAB))
    found = []
    for given in (ids, spoilt):
        model.zero_grad()
        logits = model(given, real)
        logits.square().sum().backward()
        found.append([logits, *(parameter.grad for parameter in model.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("variant", VARIANTS, ids=as_id)
def test_every_parameter_gets_a_gradient(variant: dict[str, Any]) -> None:
    model, (ids, real) = new(**variant).train(), ragged()
    model(ids, real)[:, 0].square().sum().backward()
    # Without a way around it, the norm after the last sublayer of a block is all that the next one sees.
    without = [name for name, p in model.named_parameters() if p.grad is None]
    assert without == []


def test_without_positions_the_order_of_words_does_not_matter_to_the_mean() -> None:
    model, (ids, _) = new(positions="none"), ragged()
    torch.testing.assert_close(model(ids[:, torch.randperm(TIME)]), model(ids))


def test_pieces_are_joined_by_the_mean_of_their_probabilities() -> None:
    logits = torch.randn(4, 3)
    found = joined(logits, torch.tensor([0, 1, 0, 0]), 2)
    torch.testing.assert_close(found[0].exp(), logits[[0, 2, 3]].softmax(-1).mean(0))
    torch.testing.assert_close(found[1], logits[1].log_softmax(-1))


def test_a_probability_of_zero_joins_to_a_finite_logarithm() -> None:
    assert joined(torch.tensor([[0.0, -1e4]]), torch.tensor([0]), 1).isfinite().all()


def test_the_names_of_ways_to_read_long_texts_are_those_of_the_table() -> None:
    for name in LONG_TEXTS:
        assert ClassifierConfig(**SMALL, long_texts=name).long_texts == name
    with pytest.raises(ConfigError, match="unknown way to read long texts, did you mean 'windows'"):
        build(ClassifierConfig, {**SMALL, "long_texts": "window"}, "here")


@pytest.mark.parametrize("missing", [{"labels": ["one"]}, {"vocab_size": 0}], ids=as_id)
def test_a_classifier_without_labels_or_words_is_refused(missing: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="needs vocab_size and at least two labels"):
        Classifier(ClassifierConfig(**{**SMALL, **missing}))


@pytest.mark.parametrize("how", REDUCED, ids=lambda how: how.kind)
def test_fewer_tokens_come_back_and_the_ends_of_each_text_among_them(how: ReduceConfig) -> None:
    model, (ids, real) = new(reduce=how), ragged()
    tokens = model.encode(ids, real)
    assert tokens.holder is not None
    lengths = real.sum(1).tolist()
    left = [tokens.x.shape[1]] * 3 if tokens.real is None else tokens.real.sum(1).tolist()
    assert left[0] < lengths[0] and left[2] == 1
    for row, length in enumerate(lengths):
        ends = {tokens.holder[row, place].item() for place in (0, length - 1)}
        assert -1 not in ends and len(ends) == min(2, length)


def test_where_nothing_is_asked_for_nothing_changes_to_the_bit() -> None:
    ids, real = ragged()
    whole = new()(ids, real)
    for how in (ReduceConfig(kind="merge", r=0), ReduceConfig(kind="prune", threshold=0.0)):
        assert torch.equal(new(reduce=how)(ids, real), whole)
