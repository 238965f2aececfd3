"""A loaded translator and a text in, everything its heads looked at out: a view, a page, pictures, tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clearhead.checkpoint import write_tensors
from clearhead.config import read_toml
from clearhead.errors import DataError, UsageError
from clearhead.generate.settings import GenerationConfig
from clearhead.inspection.ablation import ablated
from clearhead.inspection.generation import Diary, endings, forced_steps, tree
from clearhead.inspection.names import Head, meant, named_heads
from clearhead.inspection.page import write_page
from clearhead.inspection.pictures import draw_heads
from clearhead.inspection.record import SIDES, Forced, Tape, teacher_forced
from clearhead.inspection.view import Facts, Generation, View, build_view, stacked
from clearhead.run.translating import LoadedTranslator
from clearhead.storage import storage_error, write_text
from clearhead.text.specials import EOS_ID

BERTVIZ = {"encoder": "encoder_attention", "decoder": "decoder_attention", "cross": "cross_attention"}
"""What bertviz calls each kind of attention in its functions."""


@dataclass(frozen=True)
class Inspection:
    """What a translator's heads looked at while it translated one text, or was led to a target."""

    view: View
    """Everything, as one JSON object; see docs/view-format.md."""
    translation: str
    """What it wrote, or was to write."""
    loss: float
    """The mean negative log-probability of a token of that."""
    tape: Tape

    def save(self, path: str | Path, *, heads: str = "cross") -> Path:
        """Write a file of the kind that its name ends with; `heads` says which a picture shows, such as cross.2.3."""
        path = Path(path)
        kinds = ", ".join(FORMATS)
        if path.suffix.lower() not in FORMATS:
            raise UsageError(f"{path}: a name that ends with one of {kinds} says what to write")
        try:
            FORMATS[path.suffix.lower()](self, path, heads)
        except OSError as error:
            raise storage_error(path, error) from error
        return path

    @property
    def heads(self) -> list[Head]:
        """The heads that were heard."""
        stack = {"cross": "decoder"}
        return [
            Head(look.kind, look.layer, number, stack.get(look.kind, look.kind))
            for kind in self.tape.kinds
            for look in self.tape.of(kind)
            for number in look.heads
        ]


def inspect(
    translator: LoadedTranslator, text: str, target: str | None = None, *, ablate: Sequence[str] = (), **options: Any
) -> Inspection:
    """Translate a text, or lead the model to a target, and record every head; options are those of GenerationConfig."""
    if not text.strip():
        raise DataError("there is nothing to look at: the text is empty")
    config = translator.configured(**options)
    with ablated(translator.model, *ablate) as silent:
        source = _ids(translator, text, "source")
        if target is None:
            forced, generation = _generated(translator, source, config)
        else:
            forced, generation = _led(translator, source, _ids(translator, target, "target"))
    translation = translator.tokenizers.target.decode(forced.written)
    languages = _languages(translator.path)
    facts = Facts(
        name=translator.path.resolve().name if translator.path is not None else "translator",
        kind=translator.model.config.kind,
        parameters=sum(weights.numel() for weights in translator.model.parameters()),
        source=text,
        target=translation,
        source_language=languages[0],
        target_language=languages[1],
        ablated=tuple(ablate),
        silent=silent,
    )
    view = build_view(forced.tape, facts, translator.tokenizers.target, generation)
    return Inspection(view, translation, forced.loss, forced.tape)


def _generated(translator: LoadedTranslator, source: list[int], config: GenerationConfig) -> tuple[Forced, Generation]:
    """What generation really did, and the weights of the winner's steps."""
    diary = Diary()
    winner = translator.search([source], config, watch=diary)[0][0]
    model, tokenizers = translator.model, translator.tokenizers
    forced = teacher_forced(model, tokenizers, source, winner.ids, ends=winner.finished)

    def normalise(total: float, length: int) -> float:
        return total / max(length, 1) ** config.length_penalty

    return forced, Generation(
        diary.steps(forced.written),
        endings(diary, winner, EOS_ID, normalise),
        tree(diary, winner, EOS_ID, normalise),
    )


def _led(translator: LoadedTranslator, source: list[int], target: list[int]) -> tuple[Forced, Generation]:
    """What the model thought at each step of a target it did not choose."""
    forced = teacher_forced(translator.model, translator.tokenizers, source, target)
    return forced, Generation(forced_steps(forced.log_probs, forced.written))


def _ids(translator: LoadedTranslator, text: str, side: str) -> list[int]:
    tokenizer = getattr(translator.tokenizers, side)
    ids: list[int] = tokenizer.encode(text.strip())
    longest = translator.model.config.max_len
    if len(ids) + 1 > longest:
        raise DataError(
            f"the {side} has {len(ids):,} tokens, and this model reads at most {longest - 1}: split it into sentences"
        )
    return ids


def _languages(path: Path | None) -> tuple[str | None, str | None]:
    """The languages that a model's training config names."""
    for name in ("config.toml", "training_config.toml", "model/training_config.toml"):
        if path is not None and (path / name).is_file():
            data = read_toml(path / name).get("data", {})
            return data.get("source_language"), data.get("target_language")
    return None, None


def _page(found: Inspection, path: Path, heads: str) -> None:
    write_page(path, found.view)


def _picture(found: Inspection, path: Path, heads: str) -> None:
    chosen = meant(named_heads(found.heads), heads)
    kind = chosen[0].kind
    weights = stacked(found.tape, kind)
    # Axes belong to one kind of attention: `decoder.1` is a decoder's look at itself.
    shown = [head for head in chosen if head.kind == kind]
    queries, keys = ([token.text for token in found.tape.tokens[side]] for side in SIDES[kind])
    layers = {look.layer: place for place, look in enumerate(found.tape.of(kind))}
    draw_heads(
        path,
        torch.stack([weights[layers[head.layer], head.number] for head in shown]),
        queries,
        keys,
        [head.name for head in shown],
        f"{found.view['texts']['source']} → {found.translation}",
    )


def _json(found: Inspection, path: Path, heads: str) -> None:
    write_text(path, json.dumps(found.view, ensure_ascii=True) + "\n")


def _tensors(found: Inspection, path: Path, heads: str) -> None:
    """Stacks of (layers, batch, heads, query, key): `list(stack)` is what bertviz takes, as are the tokens."""
    stacks = {BERTVIZ[kind]: stacked(found.tape, kind)[:, None].contiguous().cpu() for kind in found.tape.kinds}
    tokens = {"encoder_tokens": "source", "decoder_tokens": "read"}
    notes = {
        name: json.dumps([token.text for token in found.tape.tokens[side]], ensure_ascii=True)
        for name, side in tokens.items()
    }
    write_tensors(path, stacks, notes)


FORMATS: dict[str, Callable[[Inspection, Path, str], None]] = {
    ".html": _page,
    ".png": _picture,
    ".svg": _picture,
    ".json": _json,
    ".safetensors": _tensors,
}
