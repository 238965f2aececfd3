"""A loaded translator and a text in, everything its heads looked at out: a view, a page, pictures, tensors."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clearhead.checkpoint import write_tensors
from clearhead.config import read_toml
from clearhead.errors import DataError, UnavailableError, UsageError
from clearhead.generate.settings import GenerationConfig
from clearhead.generate.step import Hypothesis
from clearhead.inspection.ablation import ablated
from clearhead.inspection.generation import Diary, endings, forced_steps, tree
from clearhead.inspection.names import Head, heard, meant, named_heads
from clearhead.inspection.overlays import draw_trail_on_words
from clearhead.inspection.page import write_page
from clearhead.inspection.pictures import draw_heads
from clearhead.inspection.record import SIDES, Forced, Tape, teacher_forced
from clearhead.inspection.trail import Trail, following, told_of_inputs
from clearhead.inspection.view import Facts, Generation, View, build_view, stacked
from clearhead.inspection.widget import framed_page, inspection_widget
from clearhead.run.translating import LoadedTranslator
from clearhead.storage import storage_error, write_text
from clearhead.text.specials import EOS_ID
from clearhead.text.streaming import cut

BERTVIZ = {"encoder": "encoder_attention", "decoder": "decoder_attention", "cross": "cross_attention"}
"""What bertviz calls each kind of attention in its functions."""
ONE_LINE = 60
"""Letters of both texts up to which a picture has them in one line."""


@dataclass(frozen=True, repr=False)
class Inspection:
    """What a translator's heads looked at while it translated one text, or was led to a target.

    As the last line of a notebook cell it is the page, live in the cell and saved with the notebook.
    """

    view: View
    """Everything, as one JSON object; see docs/view-format.md."""
    translation: str
    """What it wrote, or was to write."""
    loss: float
    """The mean negative log-probability of a token of that."""
    tape: Tape
    trail: Trail | None = None
    """What became of the tokens of an encoder that may make them fewer."""

    def save_trail(self, path: str | Path) -> Path:
        """Draw which tokens were merged or dropped in each layer."""
        if self.trail is None:
            raise UsageError("the tokens of this model do not become fewer: there is no trail to draw")
        holders = torch.stack([holder[0] for holder in self.trail.holders])
        titles = [f"layer {layer}: {left} left" for layer, left in enumerate(self.trail.left())]
        words = [token.text for token in self.tape.tokens["source"]]
        draw_trail_on_words(Path(path), words, holders, titles, self.translation)
        return Path(path)

    def save(self, path: str | Path, *, heads: str | None = None) -> Path:
        """Write a file of the kind that its name ends with; `heads` says which a picture shows, such as cross.2.3.

        If not given, it shows the cross heads, or where there are none those of the last kind.
        """
        path = Path(path)
        kinds = ", ".join(FORMATS)
        if path.suffix.lower() not in FORMATS:
            raise UsageError(f"{path}: a name that ends with one of {kinds} says what to write")
        try:
            FORMATS[path.suffix.lower()](self, path, heads or self.tape.kinds[-1])
        except OSError as error:
            raise storage_error(path, error) from error
        return path

    def __repr__(self) -> str:
        return f"Inspection({self.view['texts']['source']!r} → {self.translation!r})"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        """What a notebook shows: a widget, or where anywidget is missing the page in a frame."""
        try:
            shown = inspection_widget(self.view)._repr_mimebundle_(**options)
        except UnavailableError:
            shown = None
        return shown or {"text/plain": repr(self), "text/html": framed_page(self.view)}

    @property
    def heads(self) -> list[Head]:
        """The heads that were heard."""
        return heard(look for kind in self.tape.kinds for look in self.tape.of(kind))


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
            winner, diary = _generated(translator, source, config)
            forced, trail = _led(translator, source, winner.ids, ends=winner.said_end)
            generation = _told(diary, winner, forced, config)
        else:
            forced, trail = _led(translator, source, _ids(translator, target, "target"))
            generation = Generation(forced_steps(forced.log_probs, forced.written))
    written = translator.tokenizers.target.decode(forced.written)
    stopped = cut(written, config.stop) if target is None else None
    translation = written if stopped is None else stopped
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
    return Inspection(view, translation, forced.loss, forced.tape, trail)


def _generated(translator: LoadedTranslator, source: list[int], config: GenerationConfig) -> tuple[Hypothesis, Diary]:
    """The winner of a search, and what was done to find it."""
    diary = Diary()
    return translator.search([source], config, watch=diary)[0][0], diary


def _told(diary: Diary, winner: Hypothesis, forced: Forced, config: GenerationConfig) -> Generation:
    """What generation really did."""

    def normalise(total: float, length: int) -> float:
        return total / max(length, 1) ** config.length_penalty

    return Generation(
        diary.steps(forced.written),
        endings(diary, winner, EOS_ID, normalise),
        tree(diary, winner, EOS_ID, normalise),
    )


def _led(
    translator: LoadedTranslator, source: list[int], target: Sequence[int], *, ends: bool = True
) -> tuple[Forced, Trail]:
    """What the model thought and looked at in each step of a target, and what became of the tokens of its source."""
    with following(translator.model) as trail:
        forced = teacher_forced(translator.model, translator.tokenizers, source, target, ends=ends)
    if translator.model.encoder.reduces:
        told_of_inputs(forced.tape, trail)
    return forced, trail


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
    # A row for each layer, where there are several.
    by_layer = Counter(head.layer for head in shown)
    texts = found.view["texts"]["source"], found.translation
    draw_heads(
        path,
        torch.stack([weights[layers[head.layer], head.number] for head in shown]),
        queries,
        keys,
        [head.name for head in shown],
        (" → " if sum(map(len, texts)) <= ONE_LINE else "\n→ ").join(texts),
        max(by_layer.values()) if len(by_layer) > 1 else None,
    )


def _json(found: Inspection, path: Path, heads: str) -> None:
    write_text(path, json.dumps(found.view, ensure_ascii=True) + "\n")


def _tensors(found: Inspection, path: Path, heads: str) -> None:
    """Stacks of (layers, batch, heads, query, key): `list(stack)` is what bertviz takes, as are the tokens."""
    stacks = {BERTVIZ[kind]: stacked(found.tape, kind)[:, None].contiguous().cpu() for kind in found.tape.kinds}
    sides = {"encoder_tokens": "source", "decoder_tokens": "read"}
    notes = {
        name: json.dumps([token.text for token in found.tape.tokens[side]], ensure_ascii=True)
        for name, side in sides.items()
        if side in found.tape.tokens
    }
    write_tensors(path, stacks, notes)


FORMATS: dict[str, Callable[[Inspection, Path, str], None]] = {
    ".html": _page,
    ".png": _picture,
    ".svg": _picture,
    ".json": _json,
    ".safetensors": _tensors,
}
