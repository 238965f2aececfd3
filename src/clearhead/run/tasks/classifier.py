"""Classification: labelled texts are examined, tokenised and trained on; validation shows texts and their labels."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from clearhead.checkpoint import StoredModel
from clearhead.config import Tree
from clearhead.data.cutting import long_texts
from clearhead.data.labelled import KINDS, LabelledConfig, LabelledTexts, check_known, check_labels, open_labelled
from clearhead.data.sets import SETS
from clearhead.data.texts import Survey, kept_texts, listed
from clearhead.data.tokenised import Tagged
from clearhead.errors import ConfigError, DataError, UsageError
from clearhead.models.classifier import Classifier, ClassifierConfig
from clearhead.run.classifying import LoadedClassifier
from clearhead.run.gathering import Corpus, Gathered, gather, learn_tokenizer, open_corpus, tokenised
from clearhead.run.settings import ClassifierRun
from clearhead.run.starting import encoder_at_start, with_shape_of
from clearhead.run.task import About, Asked, Prepared, Progress, Task, Ticket, Trial, shown
from clearhead.text.tokenizer import TokenizerPair
from clearhead.training.events import Noted, Reading, Sample, Terms
from clearhead.training.sizing import Choice
from clearhead.training.sizing_readers import choose_reader_sizes

SHOWN_CHARACTERS = 200
"""How much of a text a person is shown."""


class ClassifierTask(Task[ClassifierRun, Gathered, Classifier]):
    """From labelled texts to a model that labels."""

    verb = "classify"
    terms = Terms("texts", ("text", "label", "said"), has_perplexity=False)

    def given(self, files: Mapping[str, str]) -> Tree:
        kind, *others = (kind for kind in KINDS if kind in files or f"validation_{kind}" in files)
        if others:
            raise UsageError(f"labelled texts are all of one kind, not {kind} and {others[0]}: turn one into the other")
        names = {"train": files.get(kind), "validation": files.get(f"validation_{kind}")}
        return {"kind": kind, **{name: file for name, file in names.items() if file is not None}}

    def examine(self, config: ClassifierRun, progress: Progress | None = None) -> Gathered:
        return examine_labelled(config.data, config.train.seed, progress)

    def choose(self, config: ClassifierRun, found: Gathered, memory: int) -> list[Choice]:
        survey = found.survey
        choices = choose_reader_sizes(survey.num_kept, survey.lengths[survey.kept], memory, survey.script)
        return with_shape_of(config.init, choices, encoder_at_start)

    def prepare(
        self, config: ClassifierRun, found: Gathered, tokenizers: TokenizerPair | None = None
    ) -> Generator[Noted | Reading, None, Prepared]:
        for line in found.report():
            yield Noted(line)
        tokenizers = yield from learn_tokenizer(config.tokenizer, found, tokenizers)
        names = found.survey.names
        corpus = yield from tokenised(
            found, tokenizers.source, lambda survey: _labelled(survey, names), content=f"labels {list(names)}"
        )
        prepared = self._prepared(config, tokenizers, corpus, names)
        for examples, what in ((prepared.training, "training"), (prepared.validation, "validation")):
            assert isinstance(examples, LabelledTexts)
            if examples.num_long:
                room, meaning = examples.long_texts.room, examples.long_texts.meaning
                size = f"{examples.num_long:,} of {len(examples):,} {what} texts"
                yield Noted(f"{size} have more than {room} tokens: {meaning} (model.long_texts)")
        tested = f", {np.count_nonzero(found.tested):,} to test on" if found.tested.any() else ""
        trained = f"{len(prepared.training):,} texts to train on ({listed(found.survey.counts(found.trained))})"
        yield Noted(f"{trained}, {len(prepared.validation):,} to validate on{tested}")
        return prepared

    def open_prepared(self, config: ClassifierRun, tokenizers: TokenizerPair | None, ticket: Ticket) -> Prepared:
        assert tokenizers is not None
        *names, labels = ticket
        return self._prepared(config, tokenizers, open_corpus(tuple(names)), json.loads(labels))

    def _prepared(
        self, config: ClassifierRun, tokenizers: TokenizerPair, corpus: Corpus, names: Sequence[str]
    ) -> Prepared:
        model = config.model
        cut = long_texts(model.long_texts, model.max_len, model.head)
        training = LabelledTexts(corpus.training, names, cut, in_training=True, drop_tokens=config.data.drop_tokens)
        validation = LabelledTexts(corpus.validation, names, cut, in_training=False)
        return Prepared(
            tokenizers, training, validation, len(training), lambda: (*corpus.ticket(), json.dumps(list(names)))
        )

    def shape(self, config: ClassifierRun, prepared: Prepared) -> ClassifierConfig:
        assert prepared.tokenizers is not None and isinstance(prepared.training, LabelledTexts)
        facts = {"vocab_size": prepared.tokenizers.source.vocab_size, "labels": list(prepared.training.names)}
        return config.model.model_copy(update=facts)

    def samples(self, model: Classifier, prepared: Prepared, device: str) -> tuple[Sample, ...]:
        texts, tokenizers = prepared.validation, prepared.tokenizers
        assert isinstance(texts, LabelledTexts) and tokenizers is not None
        rows = list(shown(texts))
        classifier = LoadedClassifier(model, tokenizers, device)
        found = classifier.judged([texts.ids(row) for row in rows])
        return tuple(
            Sample(
                _shortened(tokenizers.source.spelt(texts.ids(row)).strip()),
                texts.names[int(texts.texts.tags[row])],
                f"{texts.names[int(probs.argmax())]} ({100 * float(probs.max()):.0f} %)",
            )
            for row, probs in zip(rows, found, strict=True)
        )

    def about(self, config: ClassifierRun) -> About:
        data, shape = config.data, config.model
        return About(
            title=f"Classifier, {len(shape.labels)} labels",
            pipeline_tag="text-classification",
            languages=[],
            unit="texts",
            origin=f"{data.train}" + ("" if data.dataset is None else f" of the set {data.dataset}"),
            licence=SETS[data.dataset].licence if data.dataset is not None else None,
            rows={
                "labels": ", ".join(shape.labels[:20]) + (", …" if len(shape.labels) > 20 else ""),
                "shape": f"{shape.num_layers} layers, {shape.dim} wide, {shape.num_heads} heads, "
                f"{shape.residual}-norm, {shape.positions} positions, {shape.pooling} pooling",
                "tokenizer": f"{config.tokenizer.kind}, {shape.vocab_size:,} entries",
                "longest text": f"{shape.max_len - 2:,} tokens; of longer ones, {shape.long_texts} are read",
            },
            per="text",
            example="clearhead classify --model . < input.txt > labels.txt",
        )

    def use(self, stored: StoredModel, device: str) -> LoadedClassifier:
        assert isinstance(stored.model, Classifier) and stored.tokenizers is not None
        classifier = LoadedClassifier(stored.model, stored.tokenizers, device)
        classifier.path = stored.path
        return classifier

    def trial(self, loaded: LoadedClassifier, model: Path, asked: Asked) -> Trial:
        from clearhead.run.weighing import labelled

        return labelled(loaded, model, asked)


def examine_labelled(data: LabelledConfig, seed: int, progress: Progress | None = None) -> Gathered:
    """Read labelled texts once, and refuse labels that cannot be learnt."""
    texts, validation = open_labelled(data, "train"), open_labelled(data, "validation")
    assert texts is not None
    if data.hold_out_test is not None and data.test is not None:
        raise ConfigError("there are test data already: leave out data.hold_out_test, or data.test")
    found = gather(texts, validation, data, seed, hold_out_test=data.hold_out_test, progress=progress)
    check_labels(found.survey)
    if found.validation is not None:
        check_known(found.validation, found.survey.names)
    for name, count in found.survey.counts(found.trained).items():
        if not count:
            raise DataError(
                f"{texts.name}: all texts with the label '{name}' were held out, and none is left to train on: "
                "add some, or hold out fewer"
            )
    return found


def _labelled(survey: Survey, names: Sequence[str]) -> Iterator[Tagged]:
    """Kept texts with the places of their labels among all that are trained on."""
    places = [names.index(name) for name in survey.names]
    for number, text in kept_texts(survey):
        yield number, places[int(survey.labels[number])], text


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} …"
