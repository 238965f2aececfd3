"""Settings in, a small model with a tokenizer out: for tests that write it in other formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tests.shared.weights import stir

from clearhead.checkpoint import save_model
from clearhead.config import build
from clearhead.engines.directory import ExportNotes, describe_export
from clearhead.engines.opening import open_exported
from clearhead.export.targets import write_model
from clearhead.generate.settings import GenerationConfig
from clearhead.inspection.ablation import prune_heads
from clearhead.models.bert import Bert, BertConfig
from clearhead.models.classifier import Classifier, ClassifierConfig
from clearhead.models.gpt import Gpt, GptConfig
from clearhead.models.translator import Translator, TranslatorConfig
from clearhead.models.vit import Vit, VitConfig
from clearhead.run.classifying import LoadedClassifier
from clearhead.run.continuing import LoadedGpt
from clearhead.run.filling import LoadedBert
from clearhead.run.seeing import LoadedVit
from clearhead.run.translating import LoadedTranslator
from clearhead.text.kinds import TokenizerConfig
from clearhead.text.tokenizer import Tokenizer, TokenizerPair

SOURCE = ["abcdefg hijk", "lmnop qrstuvw", "xyz 0123456789"]
TARGET = ["ABCDEFG HIJK", "LMNOP QRSTUVW", "XYZ."]
SHAPE: dict[str, Any] = {"dim": 16, "ff_dim": 24, "num_heads": 4, "num_layers": 2, "dropout": 0.0, "max_len": 24}
SMALL: dict[str, Any] = {
    "dim": 16, "ff_dim": 24, "num_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0, "max_len": 24,
}  # fmt: skip


def made(
    *, prune: tuple[str, ...] = (), joint: bool = True, kind: str = "char", seed: int = 0, **settings: Any
) -> LoadedTranslator:
    """A translator with random weights, all of which count."""
    tokenizers = TokenizerPair.train(TokenizerConfig(kind=kind, joint=joint, vocab_size=270), SOURCE, TARGET)
    sizes = {
        "source_vocab_size": tokenizers.source.vocab_size,
        "target_vocab_size": tokenizers.target.vocab_size,
    }
    torch.manual_seed(seed)
    model = Translator(build(TranslatorConfig, {**SMALL, **sizes, **settings}, "the test"))
    stir(model)
    if model.output.bias is not None:
        model.output.bias.data.normal_()
    if prune:
        model = prune_heads(model, prune)
    return LoadedTranslator(model, tokenizers, GenerationConfig(strategy="greedy"))


def made_gpt(*, kind: str = "char", seed: int = 0, prune: tuple[str, ...] = (), **settings: Any) -> LoadedGpt:
    """A language model with random weights."""
    tokenizer = Tokenizer.train(TokenizerConfig(kind=kind, vocab_size=270), [*SOURCE, *TARGET])
    torch.manual_seed(seed)
    model = Gpt(build(GptConfig, {**SHAPE, "vocab_size": tokenizer.vocab_size, **settings}, "the test"))
    stir(model)
    model = prune_heads(model, prune) if prune else model
    return LoadedGpt(model, tokenizer, GenerationConfig(strategy="sample", loop_guard=False))


def made_classifier(**settings: Any) -> LoadedClassifier:
    """A classifier with random weights and three labels."""
    tokenizers = TokenizerPair.train(TokenizerConfig(kind="char"), SOURCE, TARGET)
    shape = {**SHAPE, "vocab_size": tokenizers.source.vocab_size, "labels": ["bad", "good", "so-so"]}
    torch.manual_seed(1)
    model = Classifier(build(ClassifierConfig, {**shape, **settings}, "the test"))
    stir(model)
    return LoadedClassifier(model, tokenizers)


def made_bert(**settings: Any) -> LoadedBert:
    """A BERT with random weights."""
    tokenizers = TokenizerPair.train(TokenizerConfig(kind="char"), SOURCE, TARGET)
    torch.manual_seed(2)
    model = Bert(build(BertConfig, {**SHAPE, "vocab_size": tokenizers.source.vocab_size, **settings}, "the test"))
    stir(model)
    return LoadedBert(model, tokenizers)


def made_vit(**settings: Any) -> LoadedVit:
    """A Vision Transformer with random weights and three labels."""
    shape: dict[str, Any] = {name: size for name, size in SHAPE.items() if name != "max_len"}
    data = {
        "labels": ["cat", "dog", "hat"], "height": 8, "width": 12, "channels": 3, "mean": [0.4, 0.5, 0.6],
        "spread": [0.2, 0.3, 0.25],
    }  # fmt: skip
    torch.manual_seed(3)
    model = Vit(build(VitConfig, {**shape, **data, **settings}, "the test"))
    stir(model)
    return LoadedVit(model)


def exported(loaded: Any, engine: str, directory: Path, quantize: str | None = None, threads: int = 1) -> Any:
    """The same model in another engine."""
    directory.mkdir()
    config = loaded.model.config
    one = getattr(loaded, "tokenizer", None)
    tokenizers = TokenizerPair(one, one) if one is not None else getattr(loaded, "tokenizers", None)
    write_model(engine, loaded.model, tokenizers, directory, quantize)
    notes = ExportNotes(
        engine=engine,
        kind=config.kind,
        quantize=quantize,
        max_len=config.max_len,
        model=config.model_dump(),
        made_by="the test",
    )
    describe_export(directory, notes, tokenizers, loaded.generation.model_dump() if loaded.model.generates else None)
    return open_exported(directory, "cpu", threads, sealed=False)


def saved(loaded: Any, directory: Path) -> Path:
    """A model directory."""
    one = getattr(loaded, "tokenizer", None)
    tokenizers = TokenizerPair(one, one) if one is not None else getattr(loaded, "tokenizers", None)
    generation = loaded.generation.model_dump() if loaded.model.generates else None
    save_model(directory, loaded.model, tokenizers, generation=generation, card="# A model\n", training_config="")
    return directory


def texts(count: int, longest: int = 20) -> list[str]:
    """Texts of all lengths, of letters that the tokenizer knows."""
    generator = torch.Generator().manual_seed(5)
    letters = "".join(SOURCE).replace(" ", "")
    return [
        "".join(letters[int(place)] for place in torch.randint(len(letters), (1 + row % longest,), generator=generator))
        for row in range(count)
    ]
