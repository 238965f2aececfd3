"""Language modelling: a text is read, tokenised and cut into windows; validation shows continuations."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path

from clearhead.checkpoint import StoredModel
from clearhead.config import Tree, build
from clearhead.data.sets import SETS
from clearhead.data.windows import Random, Tiled
from clearhead.generate.settings import GenerationConfig
from clearhead.models.gpt import Gpt, GptConfig
from clearhead.run.continuing import LoadedGpt
from clearhead.run.settings import GptRun
from clearhead.run.task import SHOWN, About, Asked, Prepared, Progress, Task, Ticket, Trial
from clearhead.run.texts import ExaminedTexts, examine_texts, open_texts, prepare_texts
from clearhead.text.tokenizer import Tokenizer, TokenizerPair
from clearhead.training.events import Noted, Reading, Sample, Terms
from clearhead.training.sizing import Choice, choose_text_sizes

PROMPT, ADDED = 32, 64
"""Tokens of a sample that are given, and that are added."""


class GptTask(Task[GptRun, ExaminedTexts, Gpt]):
    """From running text to a model that goes on with it."""

    verb = "generate"
    terms = Terms("tok", ("prompt", "continuation", "said"))

    def given(self, files: Mapping[str, str]) -> Tree:
        return dict(files)

    def examine(self, config: GptRun, progress: Progress | None = None) -> ExaminedTexts:
        return examine_texts(config.data, progress)

    def choose(self, config: GptRun, found: ExaminedTexts, memory: int) -> list[Choice]:
        text = found.training
        return choose_text_sizes(len(text), len(text.alphabet), memory, text.script)

    def prepare(
        self, config: GptRun, found: ExaminedTexts, tokenizers: TokenizerPair | None = None
    ) -> Generator[Noted | Reading, None, Prepared]:
        return prepare_texts(config, found, tokenizers)

    def open_prepared(self, config: GptRun, tokenizers: TokenizerPair | None, ticket: Ticket) -> Prepared:
        assert tokenizers is not None
        return open_texts(config, tokenizers, ticket)

    def shape(self, config: GptRun, prepared: Prepared) -> GptConfig:
        assert prepared.tokenizers is not None
        return config.model.model_copy(update={"vocab_size": prepared.tokenizers.source.vocab_size})

    def samples(self, model: Gpt, prepared: Prepared, device: str) -> tuple[Sample, ...]:
        text, tokenizers = prepared.validation, prepared.tokenizers
        assert isinstance(text, Tiled | Random) and tokenizers is not None
        loaded = LoadedGpt(model, tokenizers.source, GenerationConfig(strategy="sample", loop_guard=False), device)
        shown = [text.ids[start : start + PROMPT + ADDED].tolist() for start in _spread(len(text.ids))]
        prompts = [ids[: max(1, min(PROMPT, len(ids) // 2))] for ids in shown]
        found = loaded.search(prompts, loaded.configured(length=ADDED))
        return tuple(
            Sample(*(_one_line(tokenizers.source, part) for part in (prompt, ids[len(prompt) :], best[0].ids)))
            for ids, prompt, best in zip(shown, prompts, found, strict=True)
        )

    def about(self, config: GptRun) -> About:
        data, shape = config.data, config.model
        origin, licence = str(data.text), None
        if data.dataset is not None:
            origin, licence = (
                f"{origin} of the set {data.dataset} ({SETS[data.dataset].origin})",
                SETS[data.dataset].licence,
            )
        return About(
            title="Language model",
            pipeline_tag="text-generation",
            languages=[],
            unit="tokens",
            origin=origin,
            licence=licence,
            rows={
                "shape": f"{shape.num_layers} layers, {shape.dim} wide, {shape.num_heads} heads, "
                f"{shape.residual}-norm, {shape.positions} positions, {shape.max_len} tokens at once",
                "tokenizer": f"{config.tokenizer.kind}, {shape.vocab_size:,} entries",
            },
            per="token",
            example='clearhead generate --model . "Once upon a time"',
        )

    def use(self, stored: StoredModel, device: str) -> LoadedGpt:
        assert isinstance(stored.model, Gpt) and stored.tokenizers is not None
        generation = build(GenerationConfig, stored.generation or {}, str(stored.path / "generation_config.json"))
        loaded = LoadedGpt(stored.model, stored.tokenizers.source, generation, device)
        loaded.path = stored.path
        return loaded

    def trial(self, loaded: LoadedGpt, model: Path, asked: Asked) -> Trial:
        from clearhead.run.weighing import running_text

        return running_text(loaded, model, asked)


def _spread(length: int) -> list[int]:
    """Where the samples of a text of this length begin."""
    room = max(0, length - PROMPT - ADDED)
    return sorted({room * place // max(1, SHOWN - 1) for place in range(SHOWN)})


def _one_line(tokenizer: Tokenizer, ids: list[int] | tuple[int, ...]) -> str:
    return tokenizer.decode(ids).replace("\n", "⏎")
