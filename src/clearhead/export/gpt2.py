"""A GPT-2 as Hugging Face stores it in, our language model with the same weights and tokenizer out.

Its matrices stand on their side, those of queries, keys and values side by side. Its vocabulary is reordered, for our
control tokens come first; it has one of them, <|endoftext|>, which is our </s>. Our other three read as that one, and
are never said.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.checkpoint import named_tensors, restore_model
from clearhead.config import build
from clearhead.errors import DataError
from clearhead.export.downloaded import WEIGHTS, Downloaded, is_a
from clearhead.export.imported import Imported
from clearhead.export.names import in_block
from clearhead.export.original import LENGTHS, load_original
from clearhead.export.vocabulary import NEVER, Vocabulary, reordered
from clearhead.models.gpt import Gpt, GptConfig
from clearhead.text.renumbered import read_tokenizer, renumbered
from clearhead.text.specials import BOS_ID, SPECIALS
from clearhead.text.tokenizer import Tokenizer, TokenizerPair

PARTS = {
    "attention.query": "attn.c_attn",
    "attention.key": "attn.c_attn",
    "attention.value": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "around_attention.norm": "ln_1",
    "around_feedforward.norm": "ln_2",
    "feedforward.inner": "mlp.c_fc",
    "feedforward.outer": "mlp.c_proj",
}
OUTSIDE = {
    "decoder.positions.weight": "wpe.weight",
    "decoder.final_norm.weight": "ln_f.weight",
    "decoder.final_norm.bias": "ln_f.bias",
}
THIRDS = ("query", "key", "value")
"""What lies side by side in one matrix, in this order."""
ARCHITECTURES = ("", "GPT2LMHeadModel", "GPT2Model", "GPT2DoubleHeadsModel")
DEFAULTS: dict[str, Any] = {
    "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.1,
    "attn_pdrop": 0.1, "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
    "tie_word_embeddings": True,
}  # fmt: skip
"""What transformers take where a config says nothing."""
DRAWING: dict[str, Any] = {"do_sample": False, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
"""The same for how it draws."""
END = 50256
"""What they take for its end then; a config may also name several, of which the first counts."""


def import_gpt2(downloaded: Downloaded) -> Imported:
    """Read a GPT-2 and its byte-level tokenizer."""
    if downloaded.architecture not in ARCHITECTURES:
        raise DataError(f"{downloaded.path} is a {downloaded.architecture}, and no language model that writes text")
    downloaded.refuse({"add_cross_attention": False})
    get = {name: downloaded.setting(name, default) for name, default in DEFAULTS.items()}
    theirs = read_tokenizer(downloaded.path, "bpe")
    size = len(_table(downloaded, get))
    vocabulary = reordered(theirs.ids, size, _controls(downloaded, size), downloaded.path)
    model = Gpt(_config(downloaded, get, len(vocabulary.entries)))
    restore_model(model, _tensors(model, downloaded, get, vocabulary), downloaded.path / WEIGHTS)
    tokenizer = Tokenizer("bpe", renumbered(theirs, vocabulary.entries))
    pair = TokenizerPair(tokenizer, tokenizer)
    return Imported(model.eval(), pair, _generation(downloaded), {"target": vocabulary.rows})


def _controls(downloaded: Downloaded, size: int) -> list[int]:
    """Its ids of <s>, </s>, <blank> and <unk>; what it has not is its end."""
    ends = downloaded.config.get("eos_token_id")
    if isinstance(ends, list) and ends and is_a(int, ends[0]):
        end: int = ends[0]
    else:
        end = downloaded.setting("eos_token_id", END)
    begin, padding = (downloaded.setting(name, end) for name in ("bos_token_id", "pad_token_id"))
    for name, row in (("eos_token_id", end), ("bos_token_id", begin), ("pad_token_id", padding)):
        if not 0 <= row < size:
            raise DataError(f"{downloaded.path}: its {name} {row} is not among the {size:,} rows of its table")
    return [begin, end, padding, end]


def _config(downloaded: Downloaded, get: dict[str, Any], size: int) -> GptConfig:
    tree = {
        "vocab_size": size,
        "dim": get["n_embd"],
        "ff_dim": downloaded.setting("n_inner", 4 * get["n_embd"]),
        "num_heads": get["n_head"],
        "num_layers": get["n_layer"],
        "dropout": float(get["resid_pdrop"]),
        "attention_dropout": float(get["attn_pdrop"]),
        "norm_eps": float(get["layer_norm_epsilon"]),
        "residual": "pre",
        "feedforward": downloaded.feedforward("activation_function", "gelu_new"),
        "positions": "learned",
        "tied": bool(get["tie_word_embeddings"]),
        "output_bias": True,
        "scale_embeddings": False,
        "max_len": get["n_positions"],
    }
    return build(GptConfig, tree, str(downloaded.path / "config.json"))


def _generation(downloaded: Downloaded) -> dict[str, Any]:
    """How its makers draw, if they do; else its likeliest words would go round in circles, so a loop is stopped."""
    task = downloaded.settings.within("task_specific_params").within("text-generation")
    get = {name: downloaded.searching(name, task.get(name, default)) for name, default in DRAWING.items()}
    if not get["do_sample"]:
        return {"strategy": "greedy"}
    # There, any top_p from 1 on is off, and many write a top_k below 0 for the same.
    limits = {"top_k": max(0, get["top_k"]), "top_p": min(1.0, get["top_p"] or 1.0)}
    return {"strategy": "sample", "loop_guard": False, "temperature": get["temperature"] or 1.0, **limits}


def _tensor(downloaded: Downloaded, name: str) -> Tensor:
    return downloaded.tensor(f"transformer.{name}", name)


def _table(downloaded: Downloaded, get: dict[str, Any]) -> Tensor:
    return downloaded.tensor(
        "transformer.wte.weight", "wte.weight", *(["lm_head.weight"] if get["tie_word_embeddings"] else [])
    )


def _tensors(model: Gpt, downloaded: Downloaded, get: dict[str, Any], vocabulary: Vocabulary) -> dict[str, Tensor]:
    found = {
        "embedding.weight": _table(downloaded, get)[vocabulary.rows],
        "output.bias": torch.zeros(len(vocabulary.rows)).index_fill(0, torch.tensor(vocabulary.extra), NEVER),
    }
    if not model.config.tied:
        found["output.weight"] = downloaded.tensor("lm_head.weight")[vocabulary.rows]
    for name in named_tensors(model):
        if name.startswith("decoder."):
            found[name] = _in_decoder(downloaded, name, get)
    return found


def _in_decoder(downloaded: Downloaded, name: str, get: dict[str, Any]) -> Tensor:
    theirs = in_block(name, "h", PARTS)
    if theirs is None:
        return _tensor(downloaded, OUTSIDE[name])
    tensor = _tensor(downloaded, theirs)
    if tensor.ndim == 2:
        tensor = tensor.T
    part = name.split(".")[-2]
    if part not in THIRDS:
        return tensor.contiguous()
    tensor = tensor.chunk(3)[THIRDS.index(part)].contiguous()
    return tensor * _sharpness(get, int(name.split(".")[2])) if part == "query" else tensor


def _sharpness(get: dict[str, Any], layer: int) -> float:
    """By how much its scores are larger than ours, which are divided by the root of the width of a head and no more."""
    plain = 1.0 if get["scale_attn_weights"] else math.sqrt(get["n_embd"] // get["n_head"])
    return plain / (layer + 1) if get["scale_attn_by_inverse_layer_idx"] else plain


@torch.inference_mode()
def differences(path: Path, imported: Imported) -> float:
    """The largest difference of a score on random ids, beside transformers with the same files."""
    original = load_original(path, "GPT2LMHeadModel")
    rows = torch.tensor(imported.rows["target"])
    chance = torch.Generator().manual_seed(1)
    largest = 0.0
    for length in LENGTHS:
        ids = torch.randint(len(SPECIALS), len(rows), (4, length), generator=chance)
        ids[:, 0] = BOS_ID
        ids = ids[:, -original.config.n_positions :]
        theirs, found = original(input_ids=rows[ids]).logits[..., rows], imported.model(ids)
        # What only we have is not compared: it scores too low to be said.
        largest = max(largest, float((theirs - found)[found > NEVER / 2].abs().max()))
    return largest
