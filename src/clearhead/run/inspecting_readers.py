"""A loaded classifier or BERT and a text in, what every head of its encoder looked at out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from clearhead.data.labelled import framed
from clearhead.errors import DataError, UsageError, choose
from clearhead.inspection.ablation import ablated
from clearhead.inspection.names import Head
from clearhead.inspection.record import Tape, recording
from clearhead.inspection.tokens import tokens_of
from clearhead.inspection.trail import following, told_of_inputs
from clearhead.inspection.view import Facts, build_view
from clearhead.run.classifying import LoadedClassifier
from clearhead.run.filling import GAP, LoadedBert
from clearhead.run.inspecting import Inspection


def inspect_classifier(
    loaded: LoadedClassifier, text: str, label: str | None = None, *, ablate: Sequence[str] = ()
) -> Inspection:
    """Let a classifier read a text, and record every head; its loss is that of a label, or of its own answer."""
    if not text.strip():
        raise DataError("there is nothing to look at: the text is empty")
    (tokens,) = loaded.encode([text])
    pieces = loaded.long_texts.pieces(tokens)
    if len(pieces) > 1:
        room = loaded.long_texts.room
        raise DataError(f"the text has {len(tokens):,} tokens, and this model reads {room} at once: shorten it")
    ids = framed(pieces)[0]
    shown = {"source": tokens_of(loaded.tokenizers.source, ids[0].tolist())}
    with (
        ablated(loaded.model, *ablate) as silent,
        torch.inference_mode(),
        recording(loaded.model, shown) as tape,
        following(loaded.model) as trail,
    ):
        log_probs = loaded.model(torch.from_numpy(ids).to(loaded.device))[0].float().log_softmax(-1)
    if loaded.model.encoder.reduces:
        told_of_inputs(tape, trail)
    answer = loaded.labels[int(log_probs.argmax())]
    expected = answer if label is None else choose({name: name for name in loaded.labels}, label, "label")
    loss = -float(log_probs[loaded.labels.index(expected)])
    return dataclasses.replace(_inspection(loaded, text, answer, tape, ablate, silent, loss), trail=trail)


def inspect_bert(loaded: LoadedBert, text: str, target: str | None = None, *, ablate: Sequence[str] = ()) -> Inspection:
    """Let a BERT read a text, and fill its gaps if it has any, and record every head; the loss is that of the gaps."""
    if not text.strip():
        raise DataError("there is nothing to look at: the text is empty")
    if target is not None:
        raise UsageError("a BERT fills gaps by itself: leave out --target")
    given = loaded.encode(text)
    tokens = [
        dataclasses.replace(token, text=GAP) if is_hidden else token
        for token, is_hidden in zip(tokens_of(loaded.tokenizers.source, given.ids), given.hidden, strict=True)
    ]
    with (
        ablated(loaded.model, *ablate) as silent,
        recording(loaded.model, {"source": tokens}) as tape,
        following(loaded.model) as trail,
    ):
        found = loaded.log_probs(given)
    if loaded.model.encoder.reduces:
        told_of_inputs(tape, trail)
    ids = list(given.ids)
    for place, index in zip(given.places, found.argmax(-1).tolist(), strict=True):
        ids[place] = index
    loss = -float(found.max(-1).mean()) if given.places else 0.0
    answer = loaded.tokenizers.source.decode(ids[1:-1])
    return dataclasses.replace(_inspection(loaded, text, answer, tape, ablate, silent, loss), trail=trail)


def _inspection(
    loaded: LoadedClassifier | LoadedBert,
    text: str,
    answer: str,
    tape: Tape,
    ablate: Sequence[str],
    silent: frozenset[Head],
    loss: float,
) -> Inspection:
    kind = loaded.model.config.kind
    facts = Facts(
        name=loaded.path.resolve().name if loaded.path is not None else kind,
        kind=kind,
        parameters=sum(weights.numel() for weights in loaded.model.parameters()),
        source=text,
        target=answer,
        ablated=tuple(ablate),
        silent=silent,
    )
    return Inspection(build_view(tape, facts, loaded.tokenizers.target, None), answer, loss, tape)
