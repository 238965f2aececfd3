"""A batch of ids in, the summed loss of a model on it out: what each kind of model is trained to do.

A new objective is one function and one line in OBJECTIVES, under the name of its model.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from clearhead.data.batches import PairBatch
from clearhead.models.translator import Translator
from clearhead.nn.masks import real_tokens
from clearhead.training.losses import Loss, LossSum

Objective = Callable[[nn.Module, PairBatch, Loss], LossSum]


def translate(model: nn.Module, batch: PairBatch, loss: Loss) -> LossSum:
    """Teacher forcing: the decoder reads the right target up to each token and is asked for the next one."""
    assert isinstance(model, Translator)
    device = model.output.weight.device
    source = torch.from_numpy(batch.source).to(device)
    target = torch.from_numpy(batch.target).to(device)
    inputs, labels = target[:, :-1], target[:, 1:]
    source_real = None if batch.source_is_full else real_tokens(source, loss.pad_id)
    if batch.target_is_full:
        return loss(model.hidden(source, inputs, source_real).flatten(0, 1), labels.flatten(), model.output)
    real = real_tokens(labels, loss.pad_id)
    hidden = model.hidden(source, inputs, source_real, real)
    return loss(hidden[real], labels[real], model.output)


OBJECTIVES: dict[str, Objective] = {"translator": translate}
