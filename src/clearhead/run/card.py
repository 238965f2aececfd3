"""What is known of a finished run in, its model card out."""

from __future__ import annotations

from clearhead.models.translator import Translator
from clearhead.run.settings import RunConfig
from clearhead.training.events import Finished
from clearhead.training.logbook import clock
from clearhead.version import VERSION


def model_card(config: RunConfig, model: Translator, finished: Finished, loss: float, pairs: int) -> str:
    """The README of a model directory, in the front-matter format that model hubs read."""
    data, shape = config.data, config.model
    languages = [language for language in (data.source_language, data.target_language) if language]
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
        "numbers": f"the built-in number words up to {data.largest:,}",
    }.get(data.kind, data.kind)
    direction = f"{data.source_language or 'source'} → {data.target_language or 'target'}"
    parameters = sum(p.numel() for p in model.parameters())
    return "\n".join(
        [
            *front,
            f"# Translator, {direction}",
            "",
            "| | |",
            "|---|---|",
            f"| trained on | {pairs:,} pairs from {origin} |",
            "| licence of the data | not recorded: fill this in before you share the model |",
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
