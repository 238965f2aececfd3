"""What models are asked to do, against the plain way to ask it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clearhead.data.corpus import PairBatch
from clearhead.data.documents import MaskedBatch
from clearhead.data.examples import Draw
from clearhead.data.windows import Tiled
from clearhead.models.bert import Bert, BertConfig
from clearhead.models.gpt import Gpt, GptConfig
from clearhead.models.reduction import ReduceConfig
from clearhead.models.translator import Translator, TranslatorConfig
from clearhead.text import PAD_ID
from clearhead.training.losses import LOSSES
from clearhead.training.objectives import OBJECTIVES

IDS = np.random.default_rng(0).integers(4, 11, 30).astype(np.uint16)


def model(**settings: float) -> Gpt:
    torch.manual_seed(0)
    shape = GptConfig(vocab_size=11, dim=8, ff_dim=16, num_heads=2, num_layers=1, max_len=8, **settings)
    return Gpt(shape)


@pytest.mark.parametrize("rows", [[0, 1, 2], [0, 3], [3]], ids=str)
def test_a_language_model_is_asked_for_every_token_of_its_windows(rows: list[int]) -> None:
    gpt = model().eval()
    batch = Tiled(IDS, 8).batch(np.array(rows), Draw(1, 2))
    loss = LOSSES["cross_entropy"](0.0, PAD_ID)
    found = OBJECTIVES["gpt"](gpt, batch, loss)
    logits = gpt(torch.from_numpy(batch.inputs))
    wanted = F.cross_entropy(
        logits.flatten(0, 1), torch.from_numpy(batch.answers).flatten(), ignore_index=PAD_ID, reduction="sum"
    )
    assert found.tokens == batch.num_answers
    torch.testing.assert_close(found.total.detach(), wanted.detach(), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(found.nll, wanted.detach(), atol=1e-4, rtol=1e-5)


def test_two_passes_of_a_language_model_are_asked_to_agree() -> None:
    gpt = model(dropout=0.3).train()
    batch = Tiled(IDS, 8).batch(np.array([0, 3]), None)
    plain, agreeing = (LOSSES["cross_entropy"](0.0, PAD_ID, agreement=weight) for weight in (0.0, 5.0))
    torch.manual_seed(1)
    found = OBJECTIVES["gpt"](gpt, batch, agreeing)
    assert found.tokens == batch.num_answers
    assert float(found.total.detach()) > float(found.nll)
    # What is measured is one pass.
    gpt.eval()
    one, two = (float(OBJECTIVES["gpt"](gpt, batch, loss).total.detach()) for loss in (plain, agreeing))
    assert one == pytest.approx(two)


@pytest.mark.usefixtures("unchecked")
def test_what_the_tokens_of_a_bert_cost_is_added_while_it_learns_which_to_drop() -> None:
    asked = np.zeros((2, 8), dtype=np.bool_)
    asked[0, 2:4] = asked[1, 5] = True
    zeros = np.zeros((2, 8), dtype=np.int64)
    ids = np.random.default_rng(0).integers(4, 11, (2, 8))
    batch = MaskedBatch(
        ids, asked, asked, ids[asked], zeros, zeros, np.array([[0, 0], [1, 0]]), np.full(2, -1), asked.sum(1)
    )
    loss, totals = LOSSES["cross_entropy"](0.0, PAD_ID), []
    for weight in (0.0, 0.5):
        torch.manual_seed(0)
        # At so low a threshold all tokens are kept, and the price of each text is one.
        reduce = ReduceConfig(kind="prune", threshold=1e-9, weight=weight)
        shape = BertConfig(vocab_size=11, dim=8, ff_dim=16, num_heads=2, num_layers=2, dropout=0.0, reduce=reduce)
        bert = Bert(shape).train()
        found = OBJECTIVES["bert"](bert, batch, loss)
        found.total.backward()
        assert (bert.encoder.blocks[0].reduction.threshold.grad is not None) and found.tokens == 3
        totals.append(float(found.total.detach()))
    assert totals[1] - totals[0] == pytest.approx(0.5 * 3, rel=1e-4)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("agreement", [0.0, 1.0])
def test_what_the_source_of_a_translation_costs_is_added_for_each_word_of_it(agreement: float) -> None:
    source, target = np.random.default_rng(0).integers(4, 11, (2, 8)), np.full((2, 6), PAD_ID)
    target[0], target[1, :3] = 5, 6
    batch = PairBatch(source, target, np.array([8, 8]), np.array([5, 2]), np.arange(2))
    loss, totals = LOSSES["cross_entropy"](0.0, PAD_ID, agreement=agreement), []
    for weight in (0.0, 0.5):
        torch.manual_seed(0)
        reduce = ReduceConfig(kind="prune", threshold=1e-9, weight=weight)
        shape = TranslatorConfig(
            source_vocab_size=11, target_vocab_size=11, dim=8, ff_dim=16, num_heads=2, dropout=0.0, reduce=reduce
        )
        translator = Translator(shape).train()
        found = OBJECTIVES["translator"](translator, batch, loss)
        found.total.backward()
        assert all(block.reduction.threshold.grad is not None for block in translator.encoder.blocks)
        assert found.tokens == 7
        totals.append(float(found.total.detach()))
    assert totals[1] - totals[0] == pytest.approx(0.5 * 7, rel=1e-4)
