"""The demo's parts: its configuration, its unseen numbers, and the picture of its heads."""

from __future__ import annotations

from pathlib import Path

import torch

from clearhead.data.numbers import spell
from clearhead.inspection.pictures import draw_heads
from clearhead.inspection.record import recording
from clearhead.run.scoring import pairs_to_score
from clearhead.run.settings import TranslatorRun, find_recipe, read_config
from clearhead.run.translating import LoadedTranslator
from clearhead.text.specials import BOS_ID, EOS_ID

QUICK = ("train.steps=30", "train.validate_every=30", "train.log_every=5", "data.test_size=50")


def numbers_config(run: Path, *, quick: bool) -> TranslatorRun:
    """The numbers recipe, to be run in `run`."""
    config = read_config(find_recipe("numbers"), [f"out={str(run)!r}", *(QUICK if quick else ())])
    assert isinstance(config, TranslatorRun)
    return config


def spelled(number: int) -> str:
    """A number in German words."""
    return spell(number, "de")


def unseen_numbers(run: Path) -> tuple[list[str], list[str]]:
    """Numbers that were never trained on: German words and English words."""
    pairs, _ = pairs_to_score(run, None, None, None, "test", None)
    return [pair.source for pair in pairs], [pair.reference for pair in pairs]


def look_inside(translator: LoadedTranslator, text: str, picture: Path) -> str:
    """Draw the cross attention of every head while a text is translated; the translation comes back."""
    source = [*translator.tokenizers.source.encode(text), EOS_ID]
    said = list(translator.search([source[:-1]], translator.generation)[0][0].ids)
    inputs = [BOS_ID, *said]
    with torch.inference_mode(), recording(translator.model) as tape:
        translator.model(torch.tensor([source]), torch.tensor([inputs]))
    queries = translator.tokenizers.target.pieces([*said, EOS_ID])
    keys = translator.tokenizers.source.pieces(source)
    looks = tape.of("cross")
    weights = torch.cat([look.weights[0] for look in looks])
    titles = [f"layer {look.layer + 1}, head {head + 1}" for look in looks for head in range(look.weights.shape[1])]
    headline = f"{text} → {translator.tokenizers.target.decode(said)}: where each English piece looks"
    draw_heads(picture, weights, queries, keys, titles, headline)
    return translator.tokenizers.target.decode(said)
