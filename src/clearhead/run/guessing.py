"""A BERT and documents in, how often it knows what is hidden in them, and what follows what, out."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F

from clearhead.config import build
from clearhead.data.documents import (
    DocumentConfig,
    MaskedBatch,
    MaskedDocuments,
    document_sentences,
    open_documents,
)
from clearhead.data.examples import Batch
from clearhead.data.spans import Spans
from clearhead.data.texts import survey
from clearhead.errors import ConfigError, DataError
from clearhead.models.bert import Bert
from clearhead.run.filling import LoadedBert
from clearhead.run.gathering import tokenised_survey
from clearhead.run.settings import BertRun, trained_by
from clearhead.run.tasks import TASKS
from clearhead.verdicts import wilson

Result = TypeVar("Result")


@dataclass(frozen=True)
class Guesses:
    """How well a BERT did at what it was trained to do."""

    words: int
    """Tokens that were asked for."""
    words_right: int
    nll: float
    """Their summed negative log-likelihood, in nats."""
    pairs: int
    """Texts of which was asked whether one part follows the other."""
    pairs_right: int

    @property
    def accuracy(self) -> float:
        """The share of hidden words that it names."""
        return self.words_right / self.words

    @property
    def loss(self) -> float:
        """Nats per hidden word."""
        return self.nll / self.words

    @property
    def perplexity(self) -> float:
        """How many words it hesitates between, on average."""
        return math.exp(min(self.loss, 700.0))

    def as_json(self) -> dict[str, Any]:
        """All of it, for programs."""
        tree: dict[str, Any] = {
            "accuracy": self.accuracy,
            "accuracy_interval": list(wilson(self.words_right, self.words)),
            "count": self.words,
            "loss": self.loss,
            "perplexity": self.perplexity,
        }
        if self.pairs:
            tree["next_sentence"] = {
                "accuracy": self.pairs_right / self.pairs,
                "accuracy_interval": list(wilson(self.pairs_right, self.pairs)),
                "count": self.pairs,
            }
        return tree


def documents_to_guess(
    loaded: LoadedBert, model: Path, path: Path | None, split: str | None, instead: str = "--text FILE"
) -> MaskedDocuments:
    """Documents of a file or folder, or those that were validated on; the same tokens are hidden each time."""
    config = trained_by(model)
    assert config is None or isinstance(config, BertRun)
    data = config.data if config is not None else DocumentConfig()
    if path is not None:
        tree = {**TASKS["bert"].given({"text": str(path)}), "text": data.text}
        texts = open_documents(build(DocumentConfig, tree, "the command line"), "train")
    elif config is None or split != "validation":
        raise ConfigError(f"the model's training config names no {split} documents: use {instead}")
    else:
        texts = open_documents(data, "validation")
    if texts is not None:
        found = survey(texts, max_chars=data.max_chars, drop_duplicates=False)
        chosen = found.kept
    else:
        assert config is not None
        gathered = TASKS["bert"].examine(config)
        found, chosen = gathered.survey, gathered.held_out
    tokenizer = loaded.tokenizers.source
    everything, _ = _end_of(tokenised_survey(found, tokenizer, document_sentences, "sentences", data.whole_words))
    rows = np.flatnonzero(chosen[everything.numbers])
    return MaskedDocuments(
        Spans(everything.subset(rows), loaded.model.config.max_len),
        vocab_size=tokenizer.vocab_size,
        asked=data.asked,
        next_sentence=loaded.model.config.next_sentence,
        pack=data.pack,
    )


@torch.inference_mode()
def guessed(model: Bert, batches: Sequence[Batch], progress: Callable[[int], None]) -> Guesses:
    """Let a BERT guess what is hidden; `progress` hears how many words are done."""
    words = words_right = pairs = pairs_right = 0
    nll = 0.0
    for batch in batches:
        assert isinstance(batch, MaskedBatch)
        x = _read(model, batch)
        asked, answers = (torch.from_numpy(part).to(x.device) for part in (batch.asked, batch.answers))
        logits = model.named(x[asked]).float()
        nll += float(F.cross_entropy(logits, answers, reduction="sum").double())
        words, words_right = words + len(answers), words_right + int((logits.argmax(-1) == answers).sum())
        if model.config.next_sentence:
            rows, columns = torch.from_numpy(batch.firsts).to(x.device).unbind(1)
            said = model.follows(x[rows, columns]).argmax(-1).cpu().numpy()
            pairs += int(np.count_nonzero(batch.follows >= 0))
            pairs_right += int(np.count_nonzero(said == batch.follows))
        progress(words)
    if not words:
        raise DataError("there is nothing to score: no words to hide")
    return Guesses(words, words_right, nll, pairs, pairs_right)


def _read(model: Bert, batch: MaskedBatch) -> torch.Tensor:
    device = model.embedding.weight.device
    ids, hidden, segments, texts = (
        torch.from_numpy(part).to(device) for part in (batch.ids, batch.hidden, batch.segments, batch.texts)
    )
    real = None if batch.is_full else texts >= 0
    return model.encode(ids, hidden, segments, real=real, texts=texts if batch.is_packed else None)


def _end_of(steps: Generator[object, None, Result]) -> Result:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(Result, end.value)
