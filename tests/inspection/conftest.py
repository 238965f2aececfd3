"""What the tests of inspection share: a small untrained translator over bytes, and strange texts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from clearhead.models.translator import Translator, TranslatorConfig
from clearhead.text.kinds import TokenizerConfig
from clearhead.text.tokenizer import Tokenizer, TokenizerPair

Maker = Callable[..., Translator]


@pytest.fixture(scope="session")
def tokenizers() -> TokenizerPair:
    """Bytes on both sides: nothing to learn, and every text can be written."""
    return TokenizerPair.train(TokenizerConfig(kind="byte"), ["a"], ["a"])


@pytest.fixture(scope="session")
def make(tokenizers: TokenizerPair) -> Maker:
    """A translator with weights large enough that its heads differ, changed by settings."""

    def made(**changes: object) -> Translator:
        torch.manual_seed(5)
        sizes = {"source_vocab_size": 260, "target_vocab_size": 260, "dim": 16, "ff_dim": 24, "num_heads": 4}
        depth = {"encoder_layers": 2, "decoder_layers": 2, "max_len": 128}
        model = Translator(TranslatorConfig.model_validate({**sizes, **depth, **changes})).eval()
        for name, weights in model.named_parameters():
            if ".query." in name or ".key." in name:
                weights.data.mul_(3.0)
            if name.endswith("bias"):
                torch.nn.init.normal_(weights, std=0.3)
        return model

    return made


@pytest.fixture(scope="session")
def byte_tokenizer(tokenizers: TokenizerPair) -> Tokenizer:
    return tokenizers.source
