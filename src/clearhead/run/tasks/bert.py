"""BERT: documents are examined, cut into sentences and tokenised; validation shows hidden words and guesses."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.checkpoint import StoredModel
from clearhead.config import Tree
from clearhead.data.documents import MaskedDocuments, document_sentences, open_documents
from clearhead.data.sentences import sentences
from clearhead.data.sets import SETS
from clearhead.data.spans import Spans
from clearhead.data.tables import ENDINGS
from clearhead.data.texts import kept_texts
from clearhead.errors import DataError
from clearhead.models.bert import Bert, BertConfig
from clearhead.run.filling import GAP, LoadedBert
from clearhead.run.gathering import Corpus, Gathered, gather, learn_tokenizer, open_corpus, tokenised
from clearhead.run.settings import BertRun
from clearhead.run.task import About, Asked, Prepared, Progress, Task, Ticket, Trial, shown
from clearhead.text.tokenizer import Tokenizer, TokenizerPair
from clearhead.training.events import Noted, Reading, Sample, Terms
from clearhead.training.sizing import Choice
from clearhead.training.sizing_readers import choose_masked_sizes

SHOWN_WORDS = 5
"""So many hidden words of an example a person is shown."""
SHOWN_AROUND = 12
"""So many tokens before the first and after the last of them."""


class BertTask(Task[BertRun, Gathered, Bert]):
    """From documents to a model that knows what stands between the lines."""

    verb = "fill"
    terms = Terms("words", ("text", "hidden", "said"))

    def given(self, files: Mapping[str, str]) -> Tree:
        names = {"train": files.get("text"), "validation": files.get("validation_text")}
        tree: Tree = {name: file for name, file in names.items() if file is not None}
        known = all(Path(f.removesuffix(".gz")).suffix in ENDINGS or Path(f).is_dir() for f in tree.values())
        return tree if known else {"kind": "lines", **tree}

    def examine(self, config: BertRun, progress: Progress | None = None) -> Gathered:
        documents, validation = open_documents(config.data, "train"), open_documents(config.data, "validation")
        assert documents is not None
        return gather(documents, validation, config.data, config.train.seed, progress=progress)

    def choose(self, config: BertRun, found: Gathered, memory: int) -> list[Choice]:
        survey = found.survey
        choices = choose_masked_sizes(survey.lengths[survey.kept], memory, config.data.asked, survey.script)
        if not any(len(sentences(document)) > 1 for _, document in kept_texts(survey)):
            choices.append(Choice("model.next_sentence", False, "no document has two sentences"))
        return choices

    def prepare(
        self, config: BertRun, found: Gathered, tokenizers: TokenizerPair | None = None
    ) -> Generator[Noted | Reading, None, Prepared]:
        for line in found.report():
            yield Noted(line)
        tokenizers = yield from learn_tokenizer(config.tokenizer, found, tokenizers)
        words = config.data.whole_words
        corpus = yield from tokenised(
            found, tokenizers.source, document_sentences, content="sentences", with_words=words
        )
        prepared = self._prepared(config, tokenizers, corpus)
        training, validation = prepared.training, prepared.validation
        assert isinstance(training, MaskedDocuments) and isinstance(validation, MaskedDocuments)
        spans = training.spans
        if config.model.next_sentence and not spans.are_divisible.any():
            raise DataError(
                f"{found.survey.texts.name}: no document has two sentences, so none follows another: "
                "--set model.next_sentence=false"
            )
        if spans.num_cut:
            room = spans.max_len - 3
            yield Noted(f"{spans.num_cut:,} sentences have more than {room} tokens: each is shown in several parts")
        tokens = f"{int(spans.lengths.sum()):,} tokens in {len(spans):,} spans"
        rows = f", packed into {len(training):,} rows" if config.data.pack else ""
        yield Noted(f"{tokens} of {prepared.num_trained:,} documents to train on{rows}")
        yield Noted(f"{len(validation.spans):,} spans to validate on")
        return prepared

    def open_prepared(self, config: BertRun, tokenizers: TokenizerPair | None, ticket: Ticket) -> Prepared:
        assert tokenizers is not None
        return self._prepared(config, tokenizers, open_corpus(ticket))

    def _prepared(self, config: BertRun, tokenizers: TokenizerPair, corpus: Corpus) -> Prepared:
        def examples(texts: Spans) -> MaskedDocuments:
            return MaskedDocuments(
                texts,
                vocab_size=tokenizers.source.vocab_size,
                asked=config.data.asked,
                next_sentence=config.model.next_sentence,
                pack=config.data.pack,
            )

        training, validation = (examples(Spans(part, config.model.max_len)) for part in corpus[:2])
        return Prepared(tokenizers, training, validation, len(np.unique(corpus.training.tags)), corpus.ticket)

    def shape(self, config: BertRun, prepared: Prepared) -> BertConfig:
        assert prepared.tokenizers is not None
        return config.model.model_copy(update={"vocab_size": prepared.tokenizers.source.vocab_size})

    @torch.inference_mode()
    def samples(self, model: Bert, prepared: Prepared, device: str) -> tuple[Sample, ...]:
        """A piece of each text with its gaps, what stands there, and what the model takes to stand there."""
        examples, tokenizers = prepared.validation, prepared.tokenizers
        assert isinstance(examples, MaskedDocuments) and tokenizers is not None
        tokenizer, found = tokenizers.source, []
        was_training = model.training
        model.eval()
        for row in shown(examples):
            batch = examples.batch(np.array([row]), None)
            ids, hidden, segments, texts = (
                torch.from_numpy(part).to(device) for part in (batch.ids, batch.hidden, batch.segments, batch.texts)
            )
            apart = texts if batch.is_packed else None
            x = model.encode(ids, hidden, segments, real=texts >= 0, texts=apart)
            places = np.flatnonzero(batch.hidden[0])[:SHOWN_WORDS]
            if not len(places):
                continue
            guesses = model.named(x[0, places]).argmax(-1).tolist()
            truth = dict(zip(np.flatnonzero(batch.asked[0]).tolist(), batch.answers.tolist(), strict=True))
            around = range(max(0, places[0] - SHOWN_AROUND), min(len(batch.ids[0]), places[-1] + SHOWN_AROUND + 1))
            text = "".join(
                f" {GAP}" * len(run) if is_hidden else tokenizer.spelt(batch.ids[0, run])
                for is_hidden, run in _runs(batch.hidden[0], around)
            )
            wanted = [truth[int(place)] for place in places]
            found.append(Sample(text.strip(), *(_listed(tokenizer, g) for g in (wanted, guesses))))
        model.train(was_training)
        return tuple(found)

    def about(self, config: BertRun) -> About:
        data, shape = config.data, config.model
        files = data.train if isinstance(data.train, str) else " and ".join(data.train or ())
        return About(
            title="BERT",
            pipeline_tag="fill-mask",
            languages=[],
            unit="documents",
            origin=files + ("" if data.dataset is None else f" of the set {data.dataset}"),
            licence=SETS[data.dataset].licence if data.dataset is not None else None,
            rows={
                "shape": f"{shape.num_layers} layers, {shape.dim} wide, {shape.num_heads} heads, "
                f"{shape.residual}-norm, {shape.positions} positions, {shape.max_len} tokens",
                "tokenizer": f"{config.tokenizer.kind}, {shape.vocab_size:,} entries",
                "asked": f"{100 * data.asked:g} % of the tokens"
                + (", and which sentence follows which" if shape.next_sentence else ""),
            },
            per="hidden token",
            example=f'clearhead fill --model . "The film was {GAP}."',
        )

    def use(self, stored: StoredModel, device: str) -> LoadedBert:
        assert isinstance(stored.model, Bert) and stored.tokenizers is not None
        bert = LoadedBert(stored.model, stored.tokenizers, device)
        bert.path = stored.path
        return bert

    def trial(self, loaded: LoadedBert, model: Path, asked: Asked) -> Trial:
        from clearhead.run.weighing import documents

        return documents(loaded, model, asked)


def _runs(hidden: NDArray[np.bool_], places: range) -> list[tuple[bool, list[int]]]:
    """Places one after the other that are hidden, or are not."""
    return [(bool(is_hidden), list(run)) for is_hidden, run in itertools.groupby(places, lambda place: hidden[place])]


def _listed(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Tokens one by one; those that no text stands for as they are shown elsewhere."""
    shown = (tokenizer.decode([index]).strip() or tokenizer.pieces([index])[0] for index in ids)
    return " | ".join(shown)
