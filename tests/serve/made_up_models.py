"""Model directories with random weights, made in a moment: they say anything, but always the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from clearhead.checkpoint import save_model
from clearhead.generate.settings import GenerationConfig
from clearhead.models.bert import Bert, BertConfig
from clearhead.models.classifier import Classifier, ClassifierConfig
from clearhead.models.gpt import Gpt, GptConfig
from clearhead.models.translator import Translator, TranslatorConfig
from clearhead.text.kinds import TokenizerConfig
from clearhead.text.tokenizer import Tokenizer, TokenizerPair

TEXT = "to be, or not to be: that is the question.\nwhether 'tis nobler in the mind to suffer\n我吃了一个苹果\n"
SHAPE: dict[str, Any] = {"dim": 16, "ff_dim": 32, "num_heads": 2, "num_layers": 2, "max_len": 64}


def tokenizer(kind: str = "bpe") -> Tokenizer:
    """One that has read a little."""
    return Tokenizer.train(TokenizerConfig(kind=kind, vocab_size=300), [TEXT] * 3)


def translator(directory: Path, generation: dict[str, Any] | None = None, **shape: Any) -> Path:
    """A translator that writes eight tokens at most."""
    known = tokenizer()
    torch.manual_seed(3)
    sizes = {"source_vocab_size": known.vocab_size, "target_vocab_size": known.vocab_size}
    layers = {"encoder_layers": 1, "decoder_layers": 1, "dim": 16, "ff_dim": 32, "num_heads": 2, "max_len": 64}
    model = Translator(TranslatorConfig(**{**sizes, **layers, **shape}))
    settings = GenerationConfig(**{"strategy": "greedy", "max_len": 8, **(generation or {})}).model_dump()
    save_model(directory, model, TokenizerPair(known, known), generation=settings, card="", training_config="")
    return directory


def gpt(directory: Path, kind: str = "bpe", **shape: Any) -> Path:
    """A language model."""
    known = tokenizer(kind)
    torch.manual_seed(0)
    model = Gpt(GptConfig(vocab_size=known.vocab_size, **{**SHAPE, **shape}))
    generation = GenerationConfig(strategy="sample", loop_guard=False).model_dump()
    save_model(directory, model, TokenizerPair(known, known), generation=generation, card="", training_config="")
    return directory


def classifier(directory: Path) -> Path:
    """A classifier with three labels."""
    known = tokenizer()
    torch.manual_seed(1)
    model = Classifier(ClassifierConfig(vocab_size=known.vocab_size, labels=["bad", "good", "so-so"], **SHAPE))
    save_model(directory, model, TokenizerPair(known, known), generation=None, card="", training_config="")
    return directory


def bert(directory: Path) -> Path:
    """A model that fills gaps."""
    known = tokenizer()
    torch.manual_seed(2)
    model = Bert(BertConfig(vocab_size=known.vocab_size, **SHAPE))
    save_model(directory, model, TokenizerPair(known, known), generation=None, card="", training_config="")
    return directory
