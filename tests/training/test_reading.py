"""What classifiers and BERT are trained to do: losses from their definitions, and texts in one row stay apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clearhead.data.corpus import driven
from clearhead.data.cutting import long_texts
from clearhead.data.documents import MaskedDocuments
from clearhead.data.examples import Draw
from clearhead.data.labelled import LabelledTexts
from clearhead.data.spans import Spans
from clearhead.data.tokenised import tokenising_texts
from clearhead.models.bert import Bert, BertConfig
from clearhead.models.classifier import Classifier, ClassifierConfig
from clearhead.text import PAD_ID, Tokenizer, TokenizerConfig
from clearhead.training.losses import LOSSES
from clearhead.training.objectives import OBJECTIVES

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SIZES = {"vocab_size": 30, "dim": 8, "ff_dim": 8, "num_heads": 2, "num_layers": 1, "dropout": 0.0, "max_len": 24}


def spans_of(folder: Path) -> Spans:
    tokenizer = Tokenizer.train(TokenizerConfig(kind="char"), [LETTERS])
    rows = [
        (document, document, LETTERS[document : document + length])
        for document in range(14)
        for length in ([5, 4, 6] if document % 3 else [4])
    ]
    return Spans(driven(tokenising_texts("made up", lambda: rows, tokenizer, root=folder), None), 24)


def examples(folder: Path, *, pack: bool = False, next_sentence: bool = True) -> MaskedDocuments:
    return MaskedDocuments(spans_of(folder), vocab_size=30, asked=0.3, next_sentence=next_sentence, pack=pack)


def new_bert(next_sentence: bool = True) -> Bert:
    torch.manual_seed(0)
    return Bert(BertConfig(**SIZES, next_sentence=next_sentence)).double()


def test_texts_that_share_a_row_cost_and_teach_what_they_do_alone(tmp_path: Path) -> None:
    found = []
    for pack in (False, True):
        data, model, loss = examples(tmp_path, pack=pack), new_bert(), LOSSES["cross_entropy"](0.1, PAD_ID)
        # The widest rows last, so that those before have padding.
        sums = OBJECTIVES["bert"](model, data.batch(np.arange(len(data)), Draw(3, 1)), loss)
        sums.total.backward()
        found.append((sums, [p.grad for p in model.parameters()]))
        assert sums.tokens == data.answers.sum()
    (one, grads), (other, others) = found
    assert one.tokens == other.tokens
    torch.testing.assert_close(one.total, other.total)
    torch.testing.assert_close(one.nll, other.nll)
    for mine, theirs in zip(grads, others, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_the_loss_is_that_of_hidden_words_and_of_what_follows(tmp_path: Path) -> None:
    data, model = examples(tmp_path), new_bert().eval()
    batch = data.batch(np.arange(6), Draw(1, 0))
    sums = OBJECTIVES["bert"](model, batch, LOSSES["cross_entropy"](0.0, PAD_ID))
    real = torch.from_numpy(batch.texts >= 0)
    ids, hidden, segments = (torch.from_numpy(part) for part in (batch.ids, batch.hidden, batch.segments))
    logits = model(ids, hidden, segments, real=real)
    asked, answers = torch.from_numpy(batch.asked), torch.from_numpy(batch.answers)
    words = F.cross_entropy(logits[asked].float(), answers, reduction="sum")
    torch.testing.assert_close(sums.nll, words)
    assert sums.right == int((logits[asked].argmax(-1) == answers).sum())
    x = model.encode(ids, hidden, segments, real=real)
    follows = model.follows(x[:, 0]).log_softmax(-1)
    wanted = words.double()
    for row in range(6):
        if batch.follows[row] >= 0:
            wanted = wanted - follows[row, int(batch.follows[row])] * int(batch.weights[row])
    torch.testing.assert_close(sums.total.double(), wanted, rtol=1e-5, atol=1e-5)


def test_without_next_sentence_only_words_count(tmp_path: Path) -> None:
    data, model = examples(tmp_path, next_sentence=False), new_bert(next_sentence=False)
    sums = OBJECTIVES["bert"](model, data.batch(np.arange(5), None), LOSSES["cross_entropy"](0.0, PAD_ID))
    torch.testing.assert_close(sums.total.detach().double(), sums.nll.double())
    assert sums.right is None


@pytest.mark.parametrize("next_sentence", [True, False])
def test_a_batch_that_asks_nothing_about_sentences_gives_every_weight_a_gradient(
    tmp_path: Path, next_sentence: bool
) -> None:
    data, model = examples(tmp_path, next_sentence=next_sentence), new_bert(next_sentence).train()
    alone = np.flatnonzero(~data.spans.are_divisible)[:3]
    OBJECTIVES["bert"](model, data.batch(alone, None), LOSSES["cross_entropy"](0.0, PAD_ID)).total.backward()
    # Of three short texts, none may have hidden a token.
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_one_batch_can_be_learnt_by_heart(tmp_path: Path) -> None:
    data, model, loss = examples(tmp_path), new_bert(), LOSSES["cross_entropy"](0.0, PAD_ID)
    batch = data.batch(np.arange(8), Draw(1, 0))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        sums = OBJECTIVES["bert"](model, batch, loss)
        sums.total.backward()
        optimizer.step()
    assert float(sums.total.detach()) / sums.tokens < 0.1


def labelled(folder: Path, way: str, in_training: bool) -> LabelledTexts:
    tokenizer = Tokenizer.train(TokenizerConfig(kind="char"), [LETTERS])
    rows = [(number, number % 2, LETTERS[: 3 + 2 * number]) for number in range(8)]
    texts = driven(tokenising_texts("made up", lambda: rows, tokenizer, root=folder), None)
    return LabelledTexts(texts, ("a", "b"), long_texts(way, 12, 0.25), in_training=in_training)


def new_classifier() -> Classifier:
    torch.manual_seed(0)
    return Classifier(ClassifierConfig(**{**SIZES, "max_len": 12}, labels=["a", "b"])).double()


def test_a_classifiers_loss_is_that_of_each_text_alone(tmp_path: Path) -> None:
    model, loss = new_classifier().eval(), LOSSES["cross_entropy"](0.1, PAD_ID)
    for way in ("ends", "windows"):
        data = labelled(tmp_path, way, in_training=False)
        together = OBJECTIVES["classifier"](model, data.batch(np.arange(8), None), loss)
        alone = [OBJECTIVES["classifier"](model, data.batch(np.array([row]), None), loss) for row in range(8)]
        torch.testing.assert_close(together.total, torch.stack([one.total for one in alone]).sum())
        assert together.tokens == 8 and together.right == sum(one.right or 0 for one in alone)


def test_one_batch_of_labels_can_be_learnt_by_heart(tmp_path: Path) -> None:
    data, model, loss = labelled(tmp_path, "ends", True), new_classifier(), LOSSES["kl"](0.0, PAD_ID)
    batch = data.batch(np.arange(8), Draw(1, 0))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(100):
        optimizer.zero_grad()
        sums = OBJECTIVES["classifier"](model, batch, loss)
        sums.total.backward()
        optimizer.step()
    assert sums.right == 8 and float(sums.total.detach()) / 8 < 0.1


def test_two_passes_without_dropout_agree_and_cost_what_one_does(tmp_path: Path) -> None:
    data, model = labelled(tmp_path, "ends", True), new_classifier().train()
    batch = data.batch(np.arange(8), Draw(1, 0))
    one = OBJECTIVES["classifier"](model, batch, LOSSES["cross_entropy"](0.1, PAD_ID))
    two = OBJECTIVES["classifier"](model, batch, LOSSES["cross_entropy"](0.1, PAD_ID, agreement=3.0))
    torch.testing.assert_close(one.total, two.total)
    assert (one.tokens, one.right) == (two.tokens, two.right)
