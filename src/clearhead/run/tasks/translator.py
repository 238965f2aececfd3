"""Translation: sentence pairs are examined, tokenised and trained on; validation shows translations."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path

from clearhead.checkpoint import StoredModel
from clearhead.config import Tree, build
from clearhead.data.corpus import TokenisedPairs
from clearhead.data.doctor import kept_pairs
from clearhead.data.sets import SETS
from clearhead.data.sources import DataConfig
from clearhead.generate.settings import GenerationConfig
from clearhead.models.translator import Translator, TranslatorConfig
from clearhead.run.preparing import Examined, examine, open_prepared, prepare
from clearhead.run.settings import TranslatorRun
from clearhead.run.starting import translator_at_start, with_shape_of
from clearhead.run.task import About, Asked, Prepared, Progress, Task, Ticket, Trial, shown
from clearhead.run.translating import LoadedTranslator
from clearhead.text.script import scripts_of
from clearhead.text.tokenizer import TokenizerPair
from clearhead.training.events import Noted, Reading, Sample, Terms
from clearhead.training.sizing import Choice, choose_sizes


class TranslatorTask(Task[TranslatorRun, Examined, Translator]):
    """From pairs of sentences to a model that translates."""

    verb = "translate"
    terms = Terms("tok", ("source", "reference", "hypothesis"))

    def given(self, files: Mapping[str, str]) -> Tree:
        # Files to validate on leave it open what is trained on.
        kind = {"kind": "tsv" if "tsv" in files else "files"} if files.keys() & {"tsv", "source", "target"} else {}
        return {**kind, **files}

    def examine(self, config: TranslatorRun, progress: Progress | None = None) -> Examined:
        return examine(config, progress)

    def choose(self, config: TranslatorRun, found: Examined, memory: int) -> list[Choice]:
        report = found.checkup.report
        lengths = (report.source_lengths, report.target_lengths)
        texts = (pair[1:] for pair in kept_pairs(found.source, found.checkup))
        scripts = scripts_of(texts, columns=2)
        tokens = max(script.tokens(side.mean) for script, side in zip(scripts, lengths, strict=True))
        signs = sum(script.signs for script in scripts)
        longest = max(side.longest for side in lengths)
        choices = choose_sizes(report.kept, longest, memory, tokens, signs, _fixed_optimizer(config))
        unfit = {"model.tie": not config.tokenizer.joint, "model.start": config.model.residual == "none"}
        choices = [choice for choice in choices if not unfit.get(choice.key)]
        return with_shape_of(config.init, choices, translator_at_start)

    def prepare(
        self, config: TranslatorRun, found: Examined, tokenizers: TokenizerPair | None = None
    ) -> Generator[Noted | Reading, None, Prepared]:
        return prepare(config, found, tokenizers)

    def open_prepared(self, config: TranslatorRun, tokenizers: TokenizerPair | None, ticket: Ticket) -> Prepared:
        assert tokenizers is not None
        return open_prepared(config, tokenizers, ticket)

    def shape(self, config: TranslatorRun, prepared: Prepared) -> TranslatorConfig:
        assert prepared.tokenizers is not None
        return config.model.model_copy(
            update={
                "source_vocab_size": prepared.tokenizers.source.vocab_size,
                "target_vocab_size": prepared.tokenizers.target.vocab_size,
            }
        )

    def samples(self, model: Translator, prepared: Prepared, device: str) -> tuple[Sample, ...]:
        pairs, tokenizers = prepared.validation, prepared.tokenizers
        assert isinstance(pairs, TokenisedPairs) and tokenizers is not None
        translator = LoadedTranslator(model, tokenizers, GenerationConfig(strategy="greedy"), device)
        sources = [pairs.source(index).tolist() for index in shown(pairs)]
        found = translator.search(sources, translator.generation)
        return tuple(
            Sample(
                tokenizers.source.spelt(source).strip(),
                tokenizers.target.decode(pairs.target(index).tolist()),
                tokenizers.target.decode(hypotheses[0].ids),
            )
            for source, index, hypotheses in zip(sources, shown(pairs), found, strict=True)
        )

    def about(self, config: TranslatorRun) -> About:
        data, shape = config.data, config.model
        target = [data.target_language] if data.target_language else []
        direction = f"{', '.join(data.source_languages) or 'source'} → {data.target_language or 'target'}"
        return About(
            title=f"Translator, {direction}",
            pipeline_tag="translation",
            languages=list(dict.fromkeys([*data.source_languages, *target])),
            unit="pairs",
            origin=_origin(data),
            licence=SETS[data.dataset].licence if data.dataset is not None else None,
            rows={
                "shape": f"{shape.encoder_layers}+{shape.decoder_layers} layers, {shape.dim} wide, "
                f"{shape.num_heads} heads, {shape.residual}-norm, {shape.positions} positions",
                "tokenizer": f"{config.tokenizer.kind}, {shape.source_vocab_size:,} source and "
                f"{shape.target_vocab_size:,} target entries",
            },
            per="token",
            example="clearhead translate --model . < input.txt > output.txt",
        )

    def use(self, stored: StoredModel, device: str) -> LoadedTranslator:
        assert isinstance(stored.model, Translator) and stored.tokenizers is not None
        generation = build(GenerationConfig, stored.generation or {}, str(stored.path / "generation_config.json"))
        translator = LoadedTranslator(stored.model, stored.tokenizers, generation, device)
        translator.path = stored.path
        return translator

    def trial(self, loaded: LoadedTranslator, model: Path, asked: Asked) -> Trial:
        from clearhead.run.weighing import translations

        return translations(loaded, model, asked)


def _fixed_optimizer(config: TranslatorRun) -> str | None:
    """The optimizer that was asked for, or that goes with what was asked for; None where any will do."""
    is_given = "optimizer" in config.train.model_fields_set
    return config.train.optimizer if is_given or config.train.sharding != "none" else None


def _origin(data: DataConfig) -> str:
    origin = {
        "files": f"{data.source} and {data.target}",
        "tsv": f"{data.tsv}",
        "parts": " and ".join(part.tsv for part in data.parts),
        "numbers": f"the built-in number words up to {data.largest:,}",
    }.get(data.kind, data.kind)
    if data.dataset is not None:
        origin = f"{origin} of the set {data.dataset} ({SETS[data.dataset].origin})"
    return origin if data.extra is None else f"{origin}, and from {Path(data.extra).name}"
