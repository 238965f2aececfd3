"""Directories as Hugging Face stores models, with random weights: for tests that import them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from clearhead.export.huggingface import find_family, read_family
from clearhead.export.imported import Imported

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and it does not stop.",
    "A film to remember; the worst film of the year!",
    "我吃了一个苹果。这部电影很好，他没有看。",
    "Twenty-three foxes ran 3.14 miles on the 5th of May.",
]
TEXTS = [
    *CORPUS, "A fox.", "FOXES and Cafés", "unknown wordings", "我没有苹果 and a fox", "🦊 emoji 😀😀!",
    "naïve Ωμέγα", "a",
]  # fmt: skip


def save_bpe(path: Path) -> int:
    """Write a tokenizer like that of GPT-2; the number of its entries comes back."""
    engine = tokenizers.Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    engine.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    engine.train_from_iterator(CORPUS, trainer)
    # Last, as there.
    engine.add_special_tokens(["<|endoftext|>"])
    engine.save(str(path / "tokenizer.json"))
    write(path / "tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer", "model_max_length": 1024})
    return engine.get_vocab_size()


def save_wordpiece(path: Path, *, lower: bool = True) -> int:
    """Write a tokenizer like that of BERT; the number of its entries comes back."""
    engine = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    engine.normalizer = normalizers.BertNormalizer(lowercase=lower)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    special = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=140, special_tokens=special, show_progress=False)
    engine.train_from_iterator(CORPUS, trainer)
    engine.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, engine.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )  # fmt: skip
    engine.enable_truncation(5)
    engine.save(str(path / "tokenizer.json"))
    write(path / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "do_lower_case": lower})
    return engine.get_vocab_size()


def write(path: Path, tree: dict[str, Any]) -> None:
    path.write_text(json.dumps(tree), encoding="utf-8")


def stirred(model: Any, seed: int = 4) -> Any:
    """All weights of a model drawn anew, so that every one of them counts."""
    torch.manual_seed(seed)
    for name, tensor in model.named_parameters():
        is_norm = "norm" in name.lower() or "ln_" in name
        tensor.data.normal_(1.0 if is_norm and name.endswith("weight") else 0.0, 0.3)
    return model.eval()


def read(path: Path) -> Imported:
    """What a directory becomes."""
    return read_family(*find_family(path))


def changed(plain: Path, tmp_path: Path, **settings: Any) -> Path:
    """A copy of a directory with other settings."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in plain.iterdir():
        if file.name != "config.json":
            (copy / file.name).symlink_to(file)
    write(copy / "config.json", json.loads((plain / "config.json").read_text(encoding="utf-8")) | settings)
    return copy


def rewrite(path: Path, tree: dict[str, Any]) -> None:
    """Put another file in the place of one, which may be a link to somebody else's."""
    path.unlink(missing_ok=True)
    write(path, tree)
