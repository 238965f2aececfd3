"""A loaded language model and a text in, what every head looked at while it read the text out."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from clearhead.errors import DataError
from clearhead.inspection.ablation import ablated
from clearhead.inspection.generation import forced_steps
from clearhead.inspection.record import Forced, recording
from clearhead.inspection.tokens import tokens_of
from clearhead.inspection.view import Facts, Generation, build_view
from clearhead.run.continuing import LoadedGpt
from clearhead.run.inspecting import Inspection


def inspect_gpt(loaded: LoadedGpt, text: str, target: str | None = None, *, ablate: Sequence[str] = ()) -> Inspection:
    """Let a model read a text, and a target after it if there is one, and record every head.

    At each place it is asked what comes next: there the text says it, and at its end the model itself, by its likeliest
    token.
    """
    if not text:
        raise DataError("there is nothing to look at: the text is empty")
    tokenizer = loaded.tokenizer
    # One text, so that pieces of words are cut as they are where no border is.
    ids = loaded.encode(text + (target or ""))
    longest = loaded.model.config.max_len
    if len(ids) > longest:
        raise DataError(f"the text has {len(ids):,} tokens, and this model sees at most {longest} at once: shorten it")
    with ablated(loaded.model, *ablate) as silent:
        forced = _read(loaded, ids)
    facts = Facts(
        name=loaded.path.resolve().name if loaded.path is not None else "gpt",
        kind=loaded.model.config.kind,
        parameters=sum(weights.numel() for weights in loaded.model.parameters()),
        source=text,
        target=target,
        ablated=tuple(ablate),
        silent=silent,
    )
    steps = forced_steps(forced.log_probs, forced.written)
    view = build_view(forced.tape, facts, tokenizer, Generation(steps))
    # What the model itself has chosen says nothing about how well it reads.
    given = Forced(forced.tape, forced.written[:-1], forced.log_probs[:-1])
    loss = given.loss if len(ids) > 1 else 0.0
    # As it is shown, for it may be a space, a line end or half a character.
    foretold = tokenizer.pieces(forced.written[-1:])[0]
    return Inspection(view, target or foretold, loss, forced.tape)


@torch.no_grad()
def _read(loaded: LoadedGpt, ids: list[int]) -> Forced:
    read = {"read": tokens_of(loaded.tokenizer, ids)}
    with recording(loaded.model, read) as tape:
        log_probs = loaded.model(torch.tensor([ids], device=loaded.device))[0].float().log_softmax(-1)
    written = [*ids[1:], int(log_probs[-1].argmax())]
    tape.tokens["target"] = tokens_of(loaded.tokenizer, written)
    return Forced(tape, written, log_probs)
