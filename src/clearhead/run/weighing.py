"""A loaded model and what a user asked to try it on in, a trial of its kind out: loss, and what people judge it by."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from clearhead.data.corpus import driven
from clearhead.data.examples import Batch
from clearhead.data.tables import ENDINGS
from clearhead.data.windows import Tiled, opening_or_tokenising_text
from clearhead.errors import DataError, UsageError
from clearhead.evaluate import score
from clearhead.generate.settings import GenerationConfig
from clearhead.nn.masks import real_tokens
from clearhead.run.classifying import LoadedClassifier
from clearhead.run.continuing import LoadedGpt
from clearhead.run.filling import LoadedBert
from clearhead.run.guessing import documents_to_guess
from clearhead.run.judging import texts_to_judge
from clearhead.run.likelihood import kept_text
from clearhead.run.scoring import pairs_to_score
from clearhead.run.seeing import LoadedVit, pictures_to_score
from clearhead.run.task import Asked, Measure, Trial
from clearhead.run.texts import examine_text
from clearhead.run.translating import LoadedTranslator
from clearhead.run.trying import in_batches, picture_batches, text_batches
from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID
from clearhead.training.losses import LOSSES
from clearhead.training.objectives import OBJECTIVES

LOSS_TOKENS = 1024
"""Target tokens, padding included, whose logits exist at the same time."""
LOSS = Measure("loss", 1, 4)


class Answers(Trial):
    """Batches whose answers are right or wrong, by the objective that the model was trained on."""

    measures = (LOSS, Measure("accuracy", -1, 2))

    def __init__(self, model: Any, batches: Sequence[Batch], unit: str) -> None:
        if not batches:
            raise DataError(f"there are no {unit} to try the heads on")
        self.model, self.batches, self.unit = model, batches, unit
        self.size = sum(batch.num_answers for batch in batches)
        self._loss = LOSSES["cross_entropy"](0.0, PAD_ID)

    @torch.inference_mode()
    def measure(self, progress: Callable[[int], None]) -> tuple[float, ...]:
        nll, tokens, right = 0.0, 0, 0
        for batch in self.batches:
            sums = OBJECTIVES[self.model.config.kind](self.model, batch, self._loss)
            nll, tokens, right = nll + float(sums.nll), tokens + sums.tokens, right + (sums.right or 0)
            progress(tokens)
        return self.judged(nll / tokens, right / tokens)

    def judged(self, loss: float, right: float) -> tuple[float, ...]:
        """The loss, and the share of right answers in per cent."""
        return loss, 100 * right

    def fingerprint(self) -> str:
        known = hashlib.sha256(self.unit.encode())
        for batch in self.batches:
            for value in vars(batch).values():
                known.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
        return known.hexdigest()


class Foretelling(Answers):
    """Batches whose answers are tokens of running text: there are many good ones, and perplexity says how many."""

    measures = (LOSS, Measure("perplexity", 1, 3))

    def judged(self, loss: float, right: float) -> tuple[float, ...]:
        return loss, math.exp(min(loss, 700.0))


class Translations(Trial):
    """Pairs of sentences: the loss of the references, and BLEU of what the model says."""

    measures = (LOSS, Measure("BLEU", -1, 2))
    unit = "pairs"

    def __init__(
        self,
        translator: LoadedTranslator,
        pairs: Sequence[tuple[str, str]],
        config: GenerationConfig,
        language: str | None = None,
    ) -> None:
        if not pairs:
            raise DataError("there are no pairs to try the heads on")
        self.translator, self.pairs, self.config, self.language = translator, pairs, config, language
        self.size = len(pairs)

    def measure(self, progress: Callable[[int], None]) -> tuple[float, ...]:
        loss = mean_loss(self.translator, self.pairs)
        found = []
        for best in self.translator.stream([source for source, _ in self.pairs], self.config):
            found.append(best[0].text)
            progress(len(found))
        references = [reference for _, reference in self.pairs]
        return loss, score(found, references, target_language=self.language, resamples=0).bleu

    def fingerprint(self) -> str:
        tree = [list(map(list, self.pairs)), self.config.model_dump(), self.language]
        known = hashlib.sha256(json.dumps(tree).encode())
        known.update(self.translator.tokenizers.fingerprint().encode())
        return known.hexdigest()


@torch.inference_mode()
def mean_loss(translator: LoadedTranslator, pairs: Sequence[tuple[str, str]]) -> float:
    """The mean negative log-probability of a reference token, </s> included; pairs too long for the model are left."""
    longest = translator.model.config.max_len
    sides = (translator.tokenizers.source, translator.tokenizers.target)
    sources, targets = (
        [[*ids, EOS_ID] for ids in tokenizer.encode_batch([pair[side].strip() for pair in pairs])]
        for side, tokenizer in enumerate(sides)
    )
    fitting = [row for row in range(len(pairs)) if max(len(sources[row]), len(targets[row])) <= longest]
    if not fitting:
        raise DataError(f"no pair is short enough for this model, which reads at most {longest - 1} tokens")
    order = sorted(fitting, key=lambda row: (len(targets[row]), len(sources[row])))
    total, tokens = 0.0, 0
    while order:
        # The longest left comes first, so that it says how many fit.
        rows = order[-max(1, LOSS_TOKENS // len(targets[order[-1]])) :]
        del order[-len(rows) :]
        source, target = (_padded([side[row] for row in rows]).to(translator.device) for side in (sources, targets))
        read = torch.cat((torch.full_like(target[:, :1], BOS_ID), target[:, :-1]), 1)
        real = real_tokens(target, PAD_ID)
        logits = translator.model(source, read, real_tokens(source, PAD_ID), real)
        total += float(F.cross_entropy(logits[real], target[real], reduction="sum").double())
        tokens += int(real.sum())
    return total / tokens


def _padded(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    width = max(len(row) for row in rows)
    return torch.tensor([[*row, *[PAD_ID] * (width - len(row))] for row in rows], dtype=torch.long)


# What each kind is tried on ------------------------------------------------------------------------------------------


def translations(translator: LoadedTranslator, model: Path, asked: Asked) -> Trial:
    """Pairs of a TSV or of two files, or of a split."""
    if len(asked.files) > 2:
        raise UsageError("a translator is tried on one TSV or on two files: --on dev.tsv, or --on dev.de dev.en")
    one, two = (asked.files[0], asked.files[1]) if len(asked.files) == 2 else (None, None)
    tsv = asked.files[0] if len(asked.files) == 1 else None
    pairs, language = pairs_to_score(model, one, two, tsv, asked.split, asked.limit)
    config = translator.configured(beam_size=asked.beam or 1, nbest=1)
    return Translations(translator, [(pair[0], pair[1]) for pair in pairs], config, language)


def labelled(loaded: LoadedClassifier, model: Path, asked: Asked) -> Trial:
    """Labelled texts of a file or folder, or of a split."""
    path = asked.one_file()
    files = {} if path is None else {_kind_of(path): path}
    given = texts_to_judge(loaded, model, files, asked.split, asked.limit)
    return Answers(loaded.model, text_batches(loaded, given), "texts")


def pictures(loaded: LoadedVit, model: Path, asked: Asked) -> Trial:
    """Pictures of a folder, or of a split."""
    examples = pictures_to_score(loaded, model, asked.split, asked.one_file(), asked.limit)
    return Answers(loaded.model, picture_batches(loaded, examples), "pictures")


def running_text(loaded: LoadedGpt, model: Path, asked: Asked) -> Trial:
    """A text file, or the text of a split, in windows side by side."""
    path = asked.one_file()
    text = examine_text(path) if path is not None else kept_text(model, str(asked.split))
    tokens = driven(opening_or_tokenising_text(text.fingerprint(), text.passages, loaded.tokenizer), None)
    if not len(tokens.ids):
        raise DataError(f"{text.name} holds no text that this model's tokenizer knows")
    windows = Tiled(tokens.ids, loaded.model.config.max_len)
    return Foretelling(loaded.model, in_batches(windows, asked.limit), "tokens")


def documents(loaded: LoadedBert, model: Path, asked: Asked) -> Trial:
    """Documents of a file or folder, or those that were validated on; the same tokens are hidden each time."""
    examples = documents_to_guess(loaded, model, asked.one_file(), asked.split, "--on FILE")
    return Answers(loaded.model, in_batches(examples, asked.limit), "hidden tokens")


def _kind_of(path: Path) -> str:
    """The kind of a table of labelled texts, by its name; where that says nothing, tabs are between its columns."""
    kind = "folder" if path.is_dir() else ENDINGS.get(Path(path.name.removesuffix(".gz")).suffix.lower(), "tsv")
    return "tsv" if kind == "lines" else kind
