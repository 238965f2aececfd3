"""Settings in, a small translator with a tokenizer out: for tests that write it in other formats."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from clearhead.config import build
from clearhead.generate.settings import GenerationConfig
from clearhead.inspection.ablation import prune_heads
from clearhead.models.translator import Translator, TranslatorConfig
from clearhead.nn.norms import Norm
from clearhead.run.translating import LoadedTranslator
from clearhead.text.kinds import TokenizerConfig
from clearhead.text.tokenizer import TokenizerPair

SOURCE = ["abcdefg hijk", "lmnop qrstuvw", "xyz 0123456789"]
TARGET = ["ABCDEFG HIJK", "LMNOP QRSTUVW", "XYZ."]
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
    for module in model.modules():
        if isinstance(module, Norm):
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
                tensor.data.uniform_(0.5, 1.5) if name in {"weight", "running_var"} else tensor.data.normal_(std=0.3)
        elif isinstance(module, nn.Linear) and module.bias is not None:
            module.bias.data.normal_(std=0.3)
    if model.output.bias is not None:
        model.output.bias.data.normal_()
    if prune:
        model = prune_heads(model, prune)
    return LoadedTranslator(model, tokenizers, GenerationConfig(strategy="greedy"))


def texts(count: int, longest: int = 20) -> list[str]:
    """Texts of all lengths, of letters that the tokenizer knows."""
    generator = torch.Generator().manual_seed(5)
    letters = "".join(SOURCE).replace(" ", "")
    return [
        "".join(letters[int(place)] for place in torch.randint(len(letters), (1 + row % longest,), generator=generator))
        for row in range(count)
    ]
