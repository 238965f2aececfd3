"""A recorded tape in, the view out: one JSON object that the page, the notebook and other programs read.

The format is described in docs/view-format.md; VERSION changes when readers would have to.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.inspection import measures
from clearhead.inspection.generation import Candidate, Ending, Node
from clearhead.inspection.names import Head, heard
from clearhead.inspection.record import SIDES, Tape
from clearhead.text.tokenizer import Tokenizer

FORMAT, VERSION = "clearhead-view", 1
View = dict[str, Any]

ENCODINGS: dict[str, tuple[str, int]] = {"u16": ("<u2", 65535), "u8": ("u1", 255)}
"""How a weight is stored: the number type, and the number that stands for 1."""
MOST_WEIGHTS = 2_500_000
"""With more weights than this two bytes each would make the file too large, and one byte must do."""


@dataclass(frozen=True)
class Facts:
    """What a view says beside the weights."""

    name: str
    kind: str
    parameters: int
    source: str
    """The text as it was typed ..."""
    target: str | None
    """... and as it was written."""
    source_language: str | None = None
    target_language: str | None = None
    ablated: Sequence[str] = ()
    """Names of what was switched off, as the user gave them ..."""
    silent: frozenset[Head] = field(default_factory=frozenset)
    """... and the heads that are meant."""


@dataclass(frozen=True)
class Generation:
    """What happened while the target was written."""

    steps: Sequence[Sequence[Candidate]]
    endings: Sequence[Ending] = ()
    nodes: Sequence[Node] = ()


def build_view(tape: Tape, facts: Facts, target: Tokenizer, generation: Generation | None) -> View:
    """The view of a tape with tokens, as recorded by `teacher_forced`."""
    silent = {(head.kind, head.layer, head.number) for head in facts.silent}
    encoding = _encoding(tape)
    view: View = {
        "format": FORMAT,
        "version": VERSION,
        "model": {"name": facts.name, "kind": facts.kind, "parameters": facts.parameters},
        "languages": {"source": facts.source_language, "target": facts.target_language},
        "texts": {"source": facts.source, "target": facts.target},
        "tokens": {name: [asdict(token) for token in row] for name, row in tape.tokens.items()},
        "attention": [_block(tape, kind, encoding) for kind in tape.kinds],
        "measures": list(measures.MEASURES),
        "heads": [head for kind in tape.kinds for head in _heads(tape, kind)],
        "rollout": _rollout(tape, silent, encoding),
        **_words(tape, silent),
        "ablated": list(facts.ablated),
        "generation": None if generation is None else _generation(generation, target),
    }
    return view


def _encoding(tape: Tape) -> str:
    return "u16" if sum(look.weights.numel() for look in tape.looks) <= MOST_WEIGHTS else "u8"


def packed(weights: Float[Tensor, "*axes"], encoding: str) -> str:
    """Weights as base64 text; each is off by at most half of what one step of the encoding is.

    >>> packed(torch.tensor([0.0, 0.5, 1.0]), "u8")
    'AID/'
    """
    kind, most = ENCODINGS[encoding]
    numbers = torch.round(weights.detach().double().cpu().clamp(0, 1) * most).numpy().astype(kind)
    return base64.b64encode(np.ascontiguousarray(numbers).tobytes()).decode("ascii")


def unpacked(block: Mapping[str, Any], *shape: int) -> Float[Tensor, "*axes"]:
    """The weights of a block of a view, in this shape."""
    kind, most = ENCODINGS[block["encoding"]]
    numbers = np.frombuffer(base64.b64decode(block["data"]), dtype=kind).astype(np.float32)
    return torch.from_numpy(numbers / most).reshape(shape)


def stacked(tape: Tape, kind: str) -> Float[Tensor, "layers heads query key"]:
    """All weights of one kind of the tape's one sentence, at the numbers of their heads; pruned heads are zero."""
    looks = tape.of(kind)
    most = 1 + max(number for look in looks for number in look.heads)
    first = looks[0].weights
    whole = first.new_zeros(len(looks), most, *first.shape[2:])
    for layer, look in enumerate(looks):
        whole[layer, list(look.heads)] = look.weights[0]
    return whole


def _block(tape: Tape, kind: str, encoding: str) -> View:
    weights = stacked(tape, kind)
    queries, keys = SIDES[kind]
    return {
        "kind": kind,
        "queries": queries,
        "keys": keys,
        "layers": weights.shape[0],
        "heads": weights.shape[1],
        "causal": kind == "decoder",
        "encoding": encoding,
        "data": packed(weights, encoding),
    }


def _heads(tape: Tape, kind: str) -> Iterable[View]:
    for look in tape.of(kind):
        rows = measures.measured(measures.sight(look, tape.tokens))
        for head, row in zip(heard([look]), rows, strict=True):
            label = measures.label(row)
            yield {
                "name": head.name,
                "kind": kind,
                "layer": look.layer,
                "head": head.number,
                "measures": {name: round(value, 6) for name, value in row.items()},
                "label": None if label is None else {"code": label.code, "share": round(label.share, 6)},
            }


def _rollout(tape: Tape, silent: set[tuple[str, int, int]], encoding: str) -> View | None:
    rolled = measures.rollout(measures.active(tape, "encoder", silent))
    if rolled is None:
        return None
    return {"queries": "source", "keys": "source", "encoding": encoding, "data": packed(rolled, encoding)}


def _words(tape: Tape, silent: set[tuple[str, int, int]]) -> View:
    """What the cross attention says about words, if there is any."""
    layers = [weights for weights in measures.active(tape, "cross", silent) if len(weights)]
    if not layers:
        return {"alignment": None, "unseen": []}
    source, target = tape.tokens["source"], tape.tokens["target"]
    looked = measures.words_looked_at(torch.cat(layers), target, source)
    links = [{**link._asdict(), "weight": round(link.weight, 6)} for link in measures.alignment(looked)]
    return {"alignment": links, "unseen": measures.unseen(looked, source)}


def _generation(generation: Generation, tokenizer: Tokenizer) -> View:
    return {
        "steps": [_step(place, candidates, tokenizer) for place, candidates in enumerate(generation.steps)],
        "hypotheses": [
            {"text": tokenizer.decode(one.ids), "score": round(one.score, 6), "finished": one.finished}
            for one in generation.endings
        ],
        "tree": [
            {
                "id": node.id,
                "parent": node.parent,
                "step": node.step,
                "text": tokenizer.pieces([node.token])[0],
                "probability": _probability(node.log_prob),
                "score": round(node.score, 6),
                "fate": node.fate,
            }
            for node in generation.nodes
        ],
    }


def _step(place: int, candidates: Sequence[Candidate], tokenizer: Tokenizer) -> View:
    pieces = tokenizer.pieces(one.token for one in candidates)
    chosen = next(one for one in candidates if one.is_chosen)
    return {
        "token": place,
        "probability": _probability(chosen.log_prob),
        "candidates": [
            {"text": text, "probability": _probability(one.log_prob), "chosen": one.is_chosen}
            for text, one in zip(pieces, candidates, strict=True)
        ],
    }


def _probability(log_prob: float) -> float:
    # Six digits, not six places: the least likely are told apart too.
    return float(f"{min(math.exp(log_prob), 1.0):.6g}")
