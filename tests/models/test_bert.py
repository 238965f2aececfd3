"""The laws of BERT: what is hidden is not seen, texts that share a row do not see each other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.config import build
from clearhead.errors import ConfigError
from clearhead.models.bert import Bert, BertConfig
from clearhead.models.classifier import Classifier, ClassifierConfig
from clearhead.models.reduction import ReduceConfig
from clearhead.nn.kernels import KERNELS
from clearhead.nn.norms import NORMS
from clearhead.nn.positions import POSITIONS
from clearhead.nn.residual import RESIDUALS

VOCAB = 11
SMALL: dict[str, Any] = {
    "vocab_size": VOCAB, "dim": 8, "ff_dim": 12, "num_heads": 2, "num_layers": 2, "dropout": 0.0, "max_len": 12,
}  # fmt: skip
ISOLATED = [
    *({"positions": positions} for positions in POSITIONS),
    *({"kernel": kernel} for kernel in KERNELS),
    *({"norm": name, "residual": residual} for name, kind in NORMS.items() if not kind.mixes_time
      for residual in RESIDUALS),
    {"window": 2},
    {"embedding_norm": True, "norm_eps": 1e-2, "residual": "post"},
]  # fmt: skip
HEADS: list[dict[str, Any]] = [
    {},
    {"output_bias": True, "norm_eps": 1e-2},
    {"next_sentence": False, "num_segments": 3},
    {"fills_gaps": False},
    {"fills_gaps": False, "next_sentence": False},
]
"""What a BERT may be asked."""


def as_id(variant: dict[str, Any]) -> str:
    return "-".join(f"{name}-{value}" for name, value in variant.items())


def new(**settings: Any) -> Bert:
    torch.manual_seed(0)
    return Bert(BertConfig(**{**SMALL, **settings})).double().eval()


def ids_of(*shape: int) -> Tensor:
    torch.manual_seed(1)
    return torch.randint(4, VOCAB, shape)


def test_what_is_hidden_is_not_seen() -> None:
    model, ids = new(), ids_of(2, 6)
    hidden = torch.zeros(2, 6, dtype=torch.bool)
    hidden[:, 2] = True
    others = ids.clone()
    others[:, 2] = (ids[:, 2] + 1) % VOCAB
    torch.testing.assert_close(model(ids, hidden), model(others, hidden))
    assert not torch.allclose(model(ids), model(others))


def test_hiding_nothing_is_the_same_as_saying_nothing_of_it() -> None:
    model, ids = new(), ids_of(2, 6)
    torch.testing.assert_close(model(ids, torch.zeros(2, 6, dtype=torch.bool)), model(ids))


def test_segments_count_and_without_any_all_is_the_first() -> None:
    model, ids = new(), ids_of(2, 6)
    first = torch.zeros_like(ids)
    torch.testing.assert_close(model(ids, None, first), model(ids))
    assert not torch.allclose(model(ids, None, first + 1), model(ids))


@pytest.mark.parametrize("variant", ISOLATED, ids=as_id)
def test_texts_that_share_a_row_are_read_as_if_alone(variant: dict[str, Any]) -> None:
    model, ids = new(**variant), ids_of(1, 9)
    texts = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 2, -1]])
    together = model.encode(ids, real=texts >= 0, texts=texts)
    for number, part in enumerate((slice(0, 4), slice(4, 7), slice(7, 8))):
        torch.testing.assert_close(together[:, part], model.encode(ids[:, part]), msg=f"text {number}")


# Fewer tokens --------------------------------------------------------------------------------------------------------

FEWER = [ReduceConfig(kind="merge", r=2), *(ReduceConfig(kind=kind, threshold=2.0) for kind in ("prune", "prune_hard"))]
REDUCED = pytest.mark.parametrize("how", FEWER, ids=lambda how: how.kind)
AT_REST = [ReduceConfig(kind="merge", r=0), ReduceConfig(kind="prune", threshold=0.0)]


@pytest.mark.parametrize("norm", [name for name, kind in NORMS.items() if kind.mixes_time])
def test_texts_do_not_share_a_row_where_norms_would_mix_them(norm: str) -> None:
    texts = torch.tensor([[0, 0, 1, 1, 1]])
    with pytest.raises(ConfigError, match=r"^texts that share a row would see each other through these norms"):
        new(norm=norm).encode(ids_of(1, 5), texts=texts)


@pytest.mark.parametrize("how", AT_REST, ids=lambda how: how.kind)
def test_where_no_token_is_to_go_nothing_changes_to_the_bit(how: ReduceConfig) -> None:
    ids, real = ids_of(2, 9), torch.arange(9) < torch.tensor([[9], [4]])
    with torch.no_grad():
        assert torch.equal(new(reduce=how)(ids, real=real), new()(ids, real=real))


@REDUCED
def test_what_is_asked_for_and_what_stands_around_texts_never_goes(how: ReduceConfig) -> None:
    model, ids = new(reduce=how), ids_of(2, 12)
    hidden, asked, segments = torch.zeros(3, 2, 12, dtype=torch.bool).unbind(0)
    hidden[:, 4] = asked[:, 6] = True
    segments = (torch.arange(12) > 7).long().expand(2, -1)
    tokens = model.read(ids, hidden, segments, real=torch.arange(12) < torch.tensor([[12], [11]]), asked=asked)
    assert tokens.holder is not None and tokens.x.shape[1] < 12
    for row, last in enumerate((11, 10)):
        for place in (0, 4, 6, 7, last):
            holder = tokens.holder[row, place]
            assert holder >= 0 and (tokens.holder[row] == holder).sum() == 1, place


@REDUCED
def test_each_token_comes_back_as_the_one_it_is_in(how: ReduceConfig) -> None:
    model, ids = new(reduce=how), ids_of(2, 12)
    tokens, spread = model.read(ids), model.encode(ids)
    assert tokens.holder is not None and spread.shape == (2, 12, 8)
    for row in range(2):
        for place, holder in enumerate(tokens.holder[row].tolist()):
            wanted = tokens.x[row, holder] if holder >= 0 else torch.zeros(8, dtype=torch.double)
            assert torch.equal(spread[row, place], wanted)


@REDUCED
def test_with_fewer_tokens_a_text_is_read_alike_alone_and_padded(how: ReduceConfig) -> None:
    model, ids = new(reduce=how), ids_of(2, 12)
    real = torch.arange(12) < torch.tensor([[12], [8]])
    torch.testing.assert_close(model(ids, real=real)[1, :8], model(ids[1:, :8])[0])


def test_padding_changes_nothing() -> None:
    model, ids = new(), ids_of(2, 6)
    real = torch.arange(6) < torch.tensor([[6], [3]])
    torch.testing.assert_close(model(ids, real=real)[1, :3], model(ids[1:, :3])[0])


@pytest.mark.parametrize("heads", HEADS, ids=as_id)
def test_every_parameter_gets_a_gradient(heads: dict[str, Any]) -> None:
    model, ids = new(**heads).train(), ids_of(2, 6)
    hidden = torch.zeros(2, 6, dtype=torch.bool)
    hidden[0, 1] = True
    x = model.encode(ids, hidden, torch.ones_like(ids))
    total = x[..., 0].sum()
    if model.config.fills_gaps:
        total = total + model.named(x[:, 1]).square().sum()
    if model.config.next_sentence:
        total = total + model.follows(x[:, 0])[:, 0].sum()
    total.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_without_a_head_for_it_no_hidden_word_is_named() -> None:
    model, ids = new(fills_gaps=False), ids_of(2, 6)
    assert not [name for name, _ in model.named_parameters() if name.startswith(("transform", "norm", "output"))]
    torch.testing.assert_close(model.encode(ids).shape, torch.Size((2, 6, 8)))
    with pytest.raises(ConfigError, match="this BERT has no head that names hidden words"):
        model(ids)


def test_a_bias_of_the_output_layer_is_added_to_its_scores() -> None:
    model, ids = new(output_bias=True), ids_of(2, 6)
    before = model(ids)
    model.output.bias.data.normal_()
    torch.testing.assert_close(model(ids), before + model.output.bias)


def test_the_head_has_the_eps_of_all_norms() -> None:
    assert new(norm_eps=0.25).norm.eps == 0.25 != new().norm.eps


def test_to_tell_what_follows_two_segments_are_needed() -> None:
    with pytest.raises(ConfigError, match="next_sentence needs num_segments of 2 or more, not 1"):
        build(BertConfig, {**SMALL, "num_segments": 1}, "here")
    assert new(num_segments=3).segments.weight.shape == (3, 8)
    assert new(next_sentence=False, num_segments=3).segments.weight.shape == (3, 8)
    assert new(next_sentence=False).segments is None


def test_the_output_layer_is_the_embedding() -> None:
    model = new()
    assert model.output.weight is model.embedding.weight


def test_without_next_sentence_there_is_nothing_of_it() -> None:
    model = new(next_sentence=False)
    assert not [name for name, _ in model.named_parameters() if name.startswith(("next", "pooler", "segments"))]
    with pytest.raises(ConfigError, match="next_sentence = false"):
        model.follows(torch.zeros(1, 8, dtype=torch.double))


@pytest.mark.parametrize("next_sentence", [True, False])
def test_a_classifier_has_all_of_a_berts_encoder_under_the_same_names(next_sentence: bool) -> None:
    bert = dict(new(next_sentence=next_sentence).named_parameters())
    settings = {**SMALL, "labels": ["a", "b"], "num_segments": 2 if next_sentence else 0}
    classifier = dict(Classifier(ClassifierConfig(**settings)).named_parameters())
    shared = {name for name in bert if name.startswith(("embedding", "segments", "encoder"))}
    assert shared == classifier.keys() - {"output.weight", "output.bias"}
    assert all(bert[name].shape == classifier[name].shape for name in shared)
