"""What is known of a finished run in, its model card out."""

from __future__ import annotations

import re

from clearhead.data.sets import SETS
from clearhead.models.translator import Translator
from clearhead.run.settings import RunConfig
from clearhead.training.events import Finished
from clearhead.training.logbook import clock
from clearhead.version import VERSION


def model_card(config: RunConfig, model: Translator, finished: Finished, loss: float, pairs: int) -> str:
    """The README of a model directory, in the front-matter format that model hubs read."""
    data, shape = config.data, config.model
    languages = list(dict.fromkeys([*data.source_languages, *([data.target_language] if data.target_language else [])]))
    front = [
        "---",
        "library_name: clearhead",
        "pipeline_tag: translation",
        *(["language:", *(f"- {language}" for language in languages)] if languages else []),
        "---",
    ]
    origin = {
        "files": f"{data.source} and {data.target}",
        "tsv": f"{data.tsv}",
        "parts": " and ".join(part.tsv for part in data.parts),
        "numbers": f"the built-in number words up to {data.largest:,}",
    }.get(data.kind, data.kind)
    if data.dataset is not None:
        origin += f" of the set {data.dataset} ({SETS[data.dataset].origin})"
    licence = (
        SETS[data.dataset].licence if data.dataset is not None else "not recorded: fill this in before you share it"
    )
    direction = f"{', '.join(data.source_languages) or 'source'} → {data.target_language or 'target'}"
    parameters = sum(p.numel() for p in model.parameters())
    return "\n".join(
        [
            *front,
            f"# Translator, {direction}",
            "",
            "| | |",
            "|---|---|",
            f"| trained on | {pairs:,} pairs from {origin} |",
            f"| licence of the data | {licence} |",
            f"| parameters | {parameters:,} |",
            f"| shape | {shape.encoder_layers}+{shape.decoder_layers} layers, {shape.dim} wide, "
            f"{shape.num_heads} heads, {shape.residual}-norm, {shape.positions} positions |",
            f"| tokenizer | {config.tokenizer.kind}, {shape.source_vocab_size:,} source and "
            f"{shape.target_vocab_size:,} target entries |",
            f"| training | {finished.step:,} steps, {clock(finished.seconds)}, ended: {finished.reason} |",
            f"| validation loss | {loss:.4f} per token ({config.train.loss}, smoothing {config.train.smoothing}) |",
            f"| made by | clearhead {VERSION}: `clearhead train training_config.toml` |",
            "",
            "Use it:",
            "",
            "```",
            "clearhead translate --model . < input.txt > output.txt",
            "```",
            "",
        ]
    )


def with_section(card: str, title: str, body: str) -> str:
    """A card with a section of this title: in the place of an earlier one, or at the end.

    >>> with_section("# A\\n\\n## B\\n\\nold\\n\\n## C\\n\\nc\\n", "B", "new")
    '# A\\n\\n## B\\n\\nnew\\n\\n## C\\n\\nc\\n'
    """
    section = f"## {title}\n\n{body}\n"
    parts = [part.rstrip("\n") + "\n" for part in re.split(r"(?m)^(?=## )", card)]
    places = [place for place, part in enumerate(parts) if part.startswith(f"## {title}\n")]
    if places:
        parts[places[0]] = section
    else:
        parts.append(section)
    return "\n".join(parts)
