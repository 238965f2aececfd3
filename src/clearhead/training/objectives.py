"""A batch in, the summed loss of a model on it out: what each kind of model is trained to do.

A new objective is one function and one line in OBJECTIVES, under the name of its model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.data.corpus import PairBatch
from clearhead.data.documents import MaskedBatch
from clearhead.data.labelled import LabelledBatch
from clearhead.data.pictures import PictureBatch
from clearhead.data.windows import WindowBatch
from clearhead.models.bert import Bert
from clearhead.models.classifier import Classifier, joined
from clearhead.models.gpt import Gpt
from clearhead.models.model import Model
from clearhead.models.translator import Translator
from clearhead.models.vit import Vit
from clearhead.nn.embedding import OutputLayer
from clearhead.nn.masks import real_tokens
from clearhead.nn.tokens import Tokens
from clearhead.training.losses import Loss, LossSum

Objective = Callable[[Any, Any, Loss], LossSum]
"""A model, a batch and a loss in; each objective knows its own kind of model and of batch."""


def translate(model: Translator, batch: PairBatch, loss: Loss) -> LossSum:
    """Teacher forcing: the decoder reads the right target up to each token and is asked for the next one."""
    device = model.output.weight.device
    copies = _copies(model, loss)
    source = torch.from_numpy(batch.source).to(device).repeat(copies, 1)
    target = torch.from_numpy(batch.target).to(device).repeat(copies, 1)
    inputs, labels = target[:, :-1], target[:, 1:]
    memory = model.encode(source, None if batch.source_is_full else real_tokens(source, loss.pad_id))
    if batch.target_is_full:
        hidden, labels = model.lead(memory, inputs).flatten(0, 1), labels.flatten()
    else:
        real = real_tokens(labels, loss.pad_id)
        hidden, labels = model.lead(memory, inputs, real)[real], labels[real]
    answers = torch.from_numpy(batch.target_lengths).to(device).repeat(copies)
    sums = _judged(hidden, labels, copies, model.output, loss)
    return _with_price(sums, memory, model.config.reduce.weight / copies, answers)


def foretell(model: Gpt, batch: WindowBatch, loss: Loss) -> LossSum:
    """Each token is asked for, from those before it in its window."""
    device = model.output.weight.device
    copies = _copies(model, loss)
    inputs, labels = (torch.from_numpy(ids).to(device).repeat(copies, 1) for ids in (batch.inputs, batch.answers))
    if batch.is_full:
        hidden, labels = model.hidden(inputs).flatten(0, 1), labels.flatten()
    else:
        real = real_tokens(labels, loss.pad_id)
        hidden, labels = model.hidden(inputs, real)[real], labels[real]
    return _judged(hidden, labels, copies, model.output, loss)


def _copies(model: Model, loss: Loss) -> int:
    # Two passes are one batch with every row twice: dropout tells the copies apart.
    return 2 if loss.agreement and model.training else 1


def _judged(hidden: Tensor, labels: Tensor, copies: int, output: OutputLayer, loss: Loss) -> LossSum:
    """The loss of one pass, or of two that are to agree."""
    if copies == 1:
        return loss(hidden, labels, output)
    first, second = hidden.chunk(2)
    return loss.of_two(first, second, labels[: len(first)], output)


def classify(model: Classifier, batch: LabelledBatch, loss: Loss) -> LossSum:
    """Name the label of each text; of a text in pieces, by the mean of their probabilities."""
    device = model.output.weight.device
    copies = _copies(model, loss)
    ids = torch.from_numpy(batch.ids).to(device).repeat(copies, 1)
    labels = torch.from_numpy(batch.labels).to(device)
    tokens = model.encode(ids, None if batch.is_full else real_tokens(ids, loss.pad_id))
    logits = model.answer(tokens)
    if batch.owners is not None:
        logits = joined(logits, torch.from_numpy(batch.owners).to(device), len(labels))
    return _named(logits, labels, copies, tokens, model.config.reduce.weight, loss)


def see(model: Vit, batch: PictureBatch, loss: Loss) -> LossSum:
    """Name the label of each picture."""
    device = model.output.weight.device
    copies = _copies(model, loss)
    tokens = model.encode(torch.from_numpy(batch.pictures).to(device).repeat(copies, 1, 1, 1))
    labels = torch.from_numpy(batch.labels).to(device)
    return _named(model.answer(tokens), labels, copies, tokens, model.config.reduce.weight, loss)


def _named(logits: Tensor, labels: Tensor, copies: int, tokens: Tokens, weight: float, loss: Loss) -> LossSum:
    """The loss of labels, and with `weight` what the tokens cost, while it is learnt which to drop."""
    passes = logits.chunk(copies)
    sums = loss.of_classes(passes[0], labels, passes[1] if copies > 1 else None)
    return _with_price(sums, tokens, weight / copies)


def _with_price(sums: LossSum, tokens: Tokens, weight: float, answers: Tensor | None = None) -> LossSum:
    """With `weight` what the tokens cost, while it is learnt which to drop: for each text, as often as it answers."""
    if tokens.price is None:
        return sums
    price = tokens.price if answers is None else tokens.price * answers
    return sums._replace(total=sums.total + weight * price.sum())


def fill(model: Bert, batch: MaskedBatch, loss: Loss) -> LossSum:
    """Name the tokens that are asked for, and tell whether what looks like the next sentence is.

    For a text, that one question weighs as much as all its tokens, as in the paper, where both have a mean of their
    own; negative log-likelihood and right answers are those of tokens alone.
    """
    device = model.embedding.weight.device
    texts = torch.from_numpy(batch.texts).to(device)
    asked = torch.from_numpy(batch.asked).to(device)
    answers = torch.from_numpy(batch.answers).to(device)
    tokens = model.read(
        torch.from_numpy(batch.ids).to(device),
        torch.from_numpy(batch.hidden).to(device),
        torch.from_numpy(batch.segments).to(device),
        real=None if batch.is_full else texts >= 0,
        texts=texts if batch.is_packed else None,
        asked=asked,
    )
    x = tokens.spread()
    words = model.words(x[asked])
    sums = loss(words, answers, model.output)
    if not model.training:
        right = int((model.output(words).argmax(-1) == answers).sum())
        sums = sums._replace(right=right)
    if model.config.next_sentence:
        rows, columns = torch.from_numpy(batch.firsts).to(device).unbind(1)
        follows, weights = (torch.from_numpy(part).to(device) for part in (batch.follows, batch.weights))
        # A text of one sentence asks nothing, and its loss is worth nothing: but every weight gets its gradient.
        misses = F.cross_entropy(model.follows(x[rows, columns]).float(), follows.clamp(min=0), reduction="none")
        sums = sums._replace(total=sums.total + (misses * weights * (follows >= 0)).sum())
    # What tokens cost weighs, like the question of what follows, as much as all words of a text.
    return _with_price(sums, tokens, model.config.reduce.weight, asked.sum(1))


OBJECTIVES: dict[str, Objective] = {
    "translator": translate,
    "classifier": classify,
    "bert": fill,
    "gpt": foretell,
    "vit": see,
}
