"""A model and perhaps test data in, what both, original and copy, are asked and how they answer out.

A new kind of model is one class with the members of `Trial`, and one line in TRIALS.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.engines.classifying import TextClassifier
from clearhead.engines.filling import GAP, TextFiller
from clearhead.engines.seeing import PictureClassifier
from clearhead.engines.texts import ExportedTranslator
from clearhead.engines.writing import TextWriter
from clearhead.errors import DataError
from clearhead.export.verify import Speaker
from clearhead.run.translating import LoadedTranslator
from clearhead.text.specials import BOS_ID, EOS_ID, SPECIALS
from clearhead.text.tokenizer import Tokenizer

MADE_UP = 64
"""Texts of random tokens, where no others are given."""
LONGEST_MADE_UP = 20
ALONGSIDE = 64
"""Texts that the original translates side by side."""
ADDED = 32
"""Tokens that are added to a prompt."""

Scores = NDArray[np.float32]


class Asked(NamedTuple):
    """What both are asked."""

    texts: list[Any]
    references: list[str] | None
    """What is right, where that is known."""
    origin: str
    """Where the texts come from."""

    def some(self, most: int) -> Asked:
        """No more than so many of them, from the last one evenly back.

        >>> Asked(["a", "b", "c", "d", "e"], None, "here").some(2).texts
        ['b', 'e']
        """
        places = range(len(self.texts) - 1, -1, -max(1, -(-len(self.texts) // most)))[::-1]
        kept = None if self.references is None else [self.references[place] for place in places]
        return Asked([self.texts[place] for place in places], kept, self.origin)


class Trial(ABC):
    """How one kind of model is tried."""

    def asked(self, loaded: Any, pairs: Sequence[tuple[Any, str]] | None) -> Asked:
        """Those of some pairs of a text and what is right that fit the model; or texts that are made up."""
        if pairs is None:
            return Asked(self.made_up(loaded), None, "random tokens")
        fitting = self.fitting(loaded, pairs)
        if not fitting:
            raise DataError(f"none of the {len(pairs):,} texts to compare on fits this model")
        return Asked([text for text, _ in fitting], [right for _, right in fitting], "test data")

    @abstractmethod
    def made_up(self, loaded: Any) -> list[Any]:
        """Texts that this model can read; the same each time."""

    @abstractmethod
    def fitting(self, loaded: Any, pairs: Sequence[tuple[Any, str]]) -> list[tuple[Any, str]]:
        """Those pairs whose text this model can read."""

    @abstractmethod
    def speaker(self, model: Any) -> Speaker:
        """One of the two, ready to be asked."""


# Translators ---------------------------------------------------------------------------------------------------------


class Original:
    """A translator in torch, to be compared with."""

    def __init__(self, translator: LoadedTranslator) -> None:
        self.translator = translator

    def greedy(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        config = self.translator.configured(strategy="greedy", nbest=1)
        ids = self.translator.encode(texts, 0)
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
        found: list[tuple[int, ...]] = [()] * len(ids)
        for start in range(0, len(order), ALONGSIDE):
            rows = order[start : start + ALONGSIDE]
            for row, best in zip(rows, self.translator.search([ids[row] for row in rows], config), strict=True):
                found[row] = best[0].ids
        return found

    @torch.inference_mode()
    def logits(self, text: str, target: Sequence[int]) -> Scores:
        (source,) = self.translator.encode([text], 0)
        read, said = torch.tensor([[*source, EOS_ID]]), torch.tensor([[BOS_ID, *target]])
        device = self.translator.device
        return self.translator.model(read.to(device), said.to(device))[0].float().cpu().numpy()

    def answers(self, texts: Sequence[str]) -> list[str]:
        return self.translator.translate(texts)


class Copy:
    """The same translator in another engine."""

    def __init__(self, translator: ExportedTranslator) -> None:
        self.translator = translator

    def greedy(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        config = self.translator.configured(strategy="greedy", nbest=1)
        ids = self.translator.encode(texts, 0)
        return [best[0].ids for best in self.translator.engine.search(ids, config, range(len(ids)))]

    def logits(self, text: str, target: Sequence[int]) -> Scores:
        (source,) = self.translator.encode([text], 0)
        return self.translator.engine.logits(source, target)

    def answers(self, texts: Sequence[str]) -> list[str]:
        return self.translator.translate(texts)


class Translating(Trial):
    """Texts are translated."""

    def made_up(self, loaded: LoadedTranslator) -> list[Any]:
        return list(made_up_texts(loaded.tokenizers.source, loaded.max_len))

    def fitting(self, loaded: LoadedTranslator, pairs: Sequence[tuple[Any, str]]) -> list[tuple[Any, str]]:
        lengths = [len(ids) for ids in loaded.tokenizers.source.encode_batch([text.strip() for text, _ in pairs])]
        return [pair for pair, length in zip(pairs, lengths, strict=True) if 0 < length < loaded.max_len]

    def speaker(self, model: Any) -> Speaker:
        return Original(model) if isinstance(model, LoadedTranslator) else Copy(model)


# Language models -----------------------------------------------------------------------------------------------------


class WriterSpeaking:
    """A language model of any engine; `greedy` is asked for the same whatever its own settings are."""

    def __init__(self, writer: TextWriter) -> None:
        self.writer = writer

    def greedy(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        config = self.writer.configured(strategy="greedy", nbest=1, length=ADDED, min_len=0, stop=[])
        return [best[0].ids for best in self.writer.search([self.writer.encode(text) for text in texts], config)]

    def logits(self, text: str, target: Sequence[int]) -> Scores:
        return self.writer.logits(self.writer.encode(text), target)

    def answers(self, texts: Sequence[str]) -> list[str]:
        return self.writer.generate(texts, length=ADDED, min_len=0)


class Writing(Trial):
    """Texts are gone on with; one of them fills all that the model sees, so that it must see less of it."""

    def made_up(self, loaded: TextWriter) -> list[Any]:
        texts = made_up_texts(loaded.tokenizer, loaded.max_len)
        return [*texts, *made_up_texts(loaded.tokenizer, 2 * loaded.max_len, 1, longest=loaded.max_len - 1)]

    def fitting(self, loaded: TextWriter, pairs: Sequence[tuple[Any, str]]) -> list[tuple[Any, str]]:
        return [pair for pair in pairs if pair[0]]

    def speaker(self, model: TextWriter) -> Speaker:
        return WriterSpeaking(model)


# Models that read ----------------------------------------------------------------------------------------------------


class ClassifierSpeaking:
    """A classifier of any engine."""

    def __init__(self, classifier: TextClassifier) -> None:
        self.classifier = classifier

    def greedy(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        return [(self.classifier.labels.index(label),) for label in self.classifier.classify(texts)]

    def logits(self, text: str, target: Sequence[int]) -> Scores:
        (ids,) = self.classifier.encode([text])
        return self.classifier.scores(self.classifier.long_texts.pieces(ids))

    def answers(self, texts: Sequence[str]) -> list[str]:
        return self.classifier.classify(texts)


class Classifying(Trial):
    """Texts get labels."""

    def made_up(self, loaded: TextClassifier) -> list[Any]:
        return list(made_up_texts(loaded.tokenizers.source, loaded.long_texts.room + 1))

    def fitting(self, loaded: TextClassifier, pairs: Sequence[tuple[Any, str]]) -> list[tuple[Any, str]]:
        return [pair for pair in pairs if pair[0].strip()]

    def speaker(self, model: TextClassifier) -> Speaker:
        return ClassifierSpeaking(model)


class FillerSpeaking:
    """A BERT of any engine."""

    def __init__(self, filler: TextFiller) -> None:
        self.filler = filler

    def greedy(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        found = (self.filler.log_probs(self.filler.encode(text)) for text in texts)
        return [tuple(scores.argmax(-1).tolist()) for scores in found]

    def logits(self, text: str, target: Sequence[int]) -> Scores:
        return self.filler.logits(self.filler.encode(text))

    def answers(self, texts: Sequence[str]) -> list[str]:
        return [filled.text for filled in self.filler.stream(texts)]


class Filling(Trial):
    """A gap is put into each text, and filled."""

    def made_up(self, loaded: TextFiller) -> list[Any]:
        # Half of it for what the gap may change about the tokens beside it.
        texts = made_up_texts(loaded.tokenizers.source, max(2, loaded.max_len // 2))
        return [_with_a_gap(text, number) for number, text in enumerate(texts)]

    def fitting(self, loaded: TextFiller, pairs: Sequence[tuple[Any, str]]) -> list[tuple[Any, str]]:
        found = [(_with_a_gap(text, number), "") for number, (text, _) in enumerate(pairs) if text.strip()]
        return [pair for pair in found if _fits(loaded, pair[0])]

    def speaker(self, model: TextFiller) -> Speaker:
        return FillerSpeaking(model)


def _fits(filler: TextFiller, text: str) -> bool:
    try:
        filler.encode(text)
    except DataError:
        return False
    return True


def _with_a_gap(text: str, number: int) -> str:
    """A text with one of its words hidden, another one each time; one that has gaps is left as it is.

    >>> _with_a_gap("to be or not", 2), _with_a_gap("to [MASK]", 0)
    ('to be [MASK] not', 'to [MASK]')
    """
    words = text.split(" ")
    hidden = number % len(words)
    return text if GAP in text else " ".join(GAP if place == hidden else word for place, word in enumerate(words))


class PicturesSpeaking:
    """A Vision Transformer of any engine; a text is the pixels of a picture."""

    def __init__(self, classifier: PictureClassifier) -> None:
        self.classifier = classifier

    def greedy(self, texts: Sequence[NDArray[np.uint8]]) -> list[tuple[int, ...]]:
        return [(int(scores.argmax()),) for scores in self._scores(texts)]

    def logits(self, text: NDArray[np.uint8], target: Sequence[int]) -> Scores:
        return self.classifier.logits(text[None])

    def answers(self, texts: Sequence[NDArray[np.uint8]]) -> list[str]:
        return [self.classifier.labels[place] for (place,) in self.greedy(texts)]

    def _scores(self, pictures: Sequence[NDArray[np.uint8]]) -> Scores:
        size = self.classifier.batch_size
        parts = [np.stack(pictures[first : first + size]) for first in range(0, len(pictures), size)]
        return np.concatenate([self.classifier.logits(part) for part in parts])


class Seeing(Trial):
    """Pictures get labels."""

    def made_up(self, loaded: PictureClassifier) -> list[Any]:
        form, chance = loaded.form, np.random.default_rng(1)
        shape = (MADE_UP, form.channels, form.height, form.width)
        return list(chance.integers(0, 256, shape, dtype=np.uint8))

    def asked(self, loaded: Any, pairs: Sequence[tuple[Any, str]] | None) -> Asked:
        found = super().asked(loaded, pairs)
        return found._replace(origin="random pixels") if pairs is None else found

    def fitting(self, loaded: PictureClassifier, pairs: Sequence[tuple[Any, str]]) -> list[tuple[Any, str]]:
        return list(pairs)

    def speaker(self, model: PictureClassifier) -> Speaker:
        return PicturesSpeaking(model)


def made_up_texts(
    tokenizer: Tokenizer, max_len: int, count: int = MADE_UP, seed: int = 1, longest: int | None = None
) -> list[str]:
    """Texts of random tokens that a model can read, of all lengths up to some, or all of one; the same each time."""
    chance = random.Random(seed)
    most = max(1, min(LONGEST_MADE_UP, (max_len - 1) // 2))
    # More than enough: half characters come back as others, which may take too many tokens, and spaces as nothing.
    rows = [
        [chance.randrange(len(SPECIALS), tokenizer.vocab_size) for _ in range(longest or 1 + number % most)]
        for number in range(4 * count)
    ]
    texts = [tokenizer.decode(ids).strip() for ids in rows]
    return [text for text in texts if 0 < len(tokenizer.encode(text)) < max_len][:count] or ["a"]


TRIALS: dict[str, Trial] = {
    "translator": Translating(),
    "gpt": Writing(),
    "classifier": Classifying(),
    "bert": Filling(),
    "vit": Seeing(),
}
"""By the kind of model."""
