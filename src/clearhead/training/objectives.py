"""A batch in, the summed loss of a model on it out: what each kind of model is trained to do.

A new objective is one function and one line in OBJECTIVES, under the name of its model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from clearhead.data.corpus import PairBatch
from clearhead.models.translator import Translator
from clearhead.nn.masks import real_tokens
from clearhead.training.losses import Loss, LossSum

Objective = Callable[[Any, Any, Loss], LossSum]
"""A model, a batch and a loss in; each objective knows its own kind of model and of batch."""


def translate(model: Translator, batch: PairBatch, loss: Loss) -> LossSum:
    """Teacher forcing: the decoder reads the right target up to each token and is asked for the next one."""
    device = model.output.weight.device
    # Two passes are one batch with every row twice: dropout tells the copies apart.
    copies = 2 if loss.agreement and model.training else 1
    source = torch.from_numpy(batch.source).to(device).repeat(copies, 1)
    target = torch.from_numpy(batch.target).to(device).repeat(copies, 1)
    inputs, labels = target[:, :-1], target[:, 1:]
    source_real = None if batch.source_is_full else real_tokens(source, loss.pad_id)
    if batch.target_is_full:
        hidden, labels = model.hidden(source, inputs, source_real).flatten(0, 1), labels.flatten()
    else:
        real = real_tokens(labels, loss.pad_id)
        hidden, labels = model.hidden(source, inputs, source_real, real)[real], labels[real]
    if copies == 1:
        return loss(hidden, labels, model.output)
    first, second = hidden.chunk(2)
    return loss.of_two(first, second, labels[: len(first)], model.output)


OBJECTIVES: dict[str, Objective] = {"translator": translate}
