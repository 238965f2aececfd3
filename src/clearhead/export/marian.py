"""A Marian model (OPUS-MT) as Hugging Face stores it in, our translator with the same weights and tokenizers out.

Marian's waves stand sines first, then cosines; ours alternate. Features may be put in another order throughout a model
without changing what it says, so its features are reordered instead. Its vocabulary is reordered too, for our control
tokens come first; <s>, which it has not, is what it starts with: its padding.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.checkpoint import named_tensors, restore_model
from clearhead.config import build
from clearhead.errors import DataError
from clearhead.export.downloaded import CONFIG, WEIGHTS, Downloaded
from clearhead.export.imported import Imported
from clearhead.export.original import LENGTHS, load_original
from clearhead.export.vocabulary import NEVER, Vocabulary
from clearhead.models.translator import Translator, TranslatorConfig
from clearhead.nn.positions import waves
from clearhead.storage import read_json
from clearhead.text.sentencepiece import SentencePieces, read_pieces, sentencepiece_engine
from clearhead.text.specials import BOS_ID, EOS_ID, SPECIALS
from clearhead.text.tokenizer import Tokenizer, TokenizerPair

PARTS = {
    "attention": "self_attn",
    "cross": "encoder_attn",
    "around_attention.norm": "self_attn_layer_norm",
    "around_cross.norm": "encoder_attn_layer_norm",
    "around_feedforward.norm": "final_layer_norm",
    "feedforward.inner": "fc1",
    "feedforward.outer": "fc2",
}
PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
READS_STREAM = ("query", "key", "value", "inner")
"""Matrices whose columns are features of the stream; the rows of all others are."""
DEFAULTS: dict[str, Any] = {
    "d_model": 1024, "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 16,
    "decoder_attention_heads": 16, "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096, "activation_function": "gelu",
    "max_position_embeddings": 1024, "scale_embedding": False, "pad_token_id": 58100, "eos_token_id": 0,
    "decoder_start_token_id": 58100, "share_encoder_decoder_embeddings": True, "tie_word_embeddings": True,
    "dropout": 0.1,
}  # fmt: skip
"""What transformers takes where a config says nothing."""
SAME_WAVES = 1e-3


def import_marian(downloaded: Downloaded) -> Imported:
    """Read a Marian model and its two SentencePiece models."""
    get = {name: downloaded.setting(name, default) for name, default in DEFAULTS.items()}
    is_shared = bool(get["share_encoder_decoder_embeddings"])
    pieces = [read_pieces(downloaded.path / f"{side}.spm") for side in ("source", "target")]
    source, target = _vocabularies(downloaded, get, pieces, is_shared)
    model = Translator(_config(downloaded, get, len(source.entries), len(target.entries), is_shared))
    found = _tensors(model, downloaded, source, target)
    restore_model(model, {name: found[name] for name in named_tensors(model)}, downloaded.path / WEIGHTS)
    engines = [sentencepiece_engine(own, side.entries) for own, side in zip(pieces, (source, target), strict=True)]
    generation = {
        "strategy": "beam" if (beam := downloaded.searching("num_beams", 1)) > 1 else "greedy",
        "beam_size": beam,
        "length_penalty": downloaded.searching("length_penalty", 1.0) or 1.0,
    }
    pair = TokenizerPair(*(Tokenizer("sentencepiece", engine) for engine in engines))
    return Imported(model.eval(), pair, generation, {"source": source.rows, "target": target.rows})


def _config(
    downloaded: Downloaded, get: dict[str, Any], source_size: int, target_size: int, is_shared: bool
) -> TranslatorConfig:
    for name in ("attention_heads", "ffn_dim"):
        if get[f"encoder_{name}"] != get[f"decoder_{name}"]:
            raise DataError(f"its encoder and decoder have different {name}, which our translator cannot have")
    if get["d_model"] % 2:
        raise DataError(f"its width {get['d_model']} is odd, and so has no pairs of waves")
    tie = "all" if is_shared and get["tie_word_embeddings"] else "target" if get["tie_word_embeddings"] else "none"
    tree = {
        "source_vocab_size": source_size,
        "target_vocab_size": target_size,
        "dim": get["d_model"],
        "ff_dim": get["encoder_ffn_dim"],
        "num_heads": get["encoder_attention_heads"],
        "encoder_layers": get["encoder_layers"],
        "decoder_layers": get["decoder_layers"],
        "dropout": float(get["dropout"]),
        "residual": "post",
        "feedforward": downloaded.feedforward("activation_function", DEFAULTS["activation_function"]),
        "tie": tie,
        "output_bias": True,
        "scale_embeddings": bool(get["scale_embedding"]),
        "max_len": get["max_position_embeddings"],
    }
    return build(TranslatorConfig, tree, str(downloaded.path / CONFIG))


# Vocabularies --------------------------------------------------------------------------------------------------------


def _vocabularies(
    downloaded: Downloaded, get: dict[str, Any], pieces: Sequence[SentencePieces], is_shared: bool
) -> tuple[Vocabulary, Vocabulary]:
    names = ("model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
    if is_shared:
        size = len(downloaded.tensor(*names, "lm_head.weight"))
        both = _vocabulary(downloaded.path / "vocab.json", size, get, [*pieces[0].scores, *pieces[1].scores])
        return both, both
    sides = (("vocab.json", names[1]), ("target_vocab.json", names[2]))
    source, target = (
        _vocabulary(downloaded.path / file, len(downloaded.tensor(name)), get, [*own.scores])
        for (file, name), own in zip(sides, pieces, strict=True)
    )
    return source, target


def _vocabulary(path: Path, size: int, get: dict[str, Any], pieces: Sequence[str]) -> Vocabulary:
    theirs = read_json(path)
    if not all(isinstance(row, int) and 0 <= row < size for row in theirs.values()):
        raise DataError(f"{path} has ids that are not among the {size:,} rows of the model's table")
    start, end, padding, unknown = (
        get["decoder_start_token_id"], get["eos_token_id"], get["pad_token_id"], theirs.get("<unk>")
    )  # fmt: skip
    if unknown is None or not all(isinstance(row, int) and 0 <= row < size for row in (start, end, padding)):
        raise DataError(f"{path} does not go with its config.json: a control token is missing")
    token_of = {row: token for token, row in theirs.items()}
    others = [row for row in range(size) if row not in (end, padding, unknown)]
    # Rows that no entry names stay: they have a part in every probability.
    entries = [*SPECIALS, *(token_of.get(row, f"row {row}") for row in others)]
    known = set(entries)
    missing = list(dict.fromkeys(piece for piece in pieces if piece not in known))
    rows = [start, end, padding, unknown, *others, *[unknown] * len(missing)]
    return Vocabulary([*entries, *missing], rows, [0, *range(len(entries), len(rows))])


# Weights -------------------------------------------------------------------------------------------------------------


def _tensors(model: Translator, downloaded: Downloaded, source: Vocabulary, target: Vocabulary) -> dict[str, Tensor]:
    dim = model.config.dim
    order = torch.arange(dim).view(2, dim // 2).T.flatten()
    for stack in ("encoder", "decoder"):
        _check_waves(downloaded, f"model.{stack}.embed_positions.weight", order)
    shared = "model.shared.weight"
    tables = {
        "source_embedding": ("model.encoder.embed_tokens.weight", shared, "lm_head.weight"),
        "target_embedding": ("model.decoder.embed_tokens.weight", shared, "lm_head.weight"),
        "output": ("lm_head.weight", "model.decoder.embed_tokens.weight", shared),
    }
    rows = {"source_embedding": source.rows, "target_embedding": target.rows, "output": target.rows}
    found = {f"{name}.weight": downloaded.tensor(*names)[rows[name]][:, order] for name, names in tables.items()}
    name = "final_logits_bias"
    bias = downloaded.tensor(name).flatten() if downloaded.has(name) else torch.zeros(max(target.rows) + 1)
    found["output.bias"] = bias[target.rows].index_fill(0, torch.tensor(target.extra), NEVER)
    for name in model.state_dict():
        if name.startswith(("encoder.", "decoder.")):
            tensor = downloaded.tensor(marian_name(name))
            part = name.split(".")[-2]
            if part not in READS_STREAM:
                tensor = tensor[order]
            elif tensor.ndim == 2:
                tensor = tensor[:, order]
            found[name] = tensor
    return found


def _check_waves(downloaded: Downloaded, name: str, order: Tensor) -> None:
    """Where positions are stored, they must be the usual waves."""
    if name not in downloaded.tensors:
        return
    table = downloaded.tensor(name)[:, order]
    if (table - waves(*table.shape)).abs().max() > SAME_WAVES:
        raise DataError(f"{downloaded.path}: {name} is not the usual table of waves")


# Beside the original -------------------------------------------------------------------------------------------------


@torch.inference_mode()
def differences(path: Path, imported: Imported) -> float:
    """The largest difference of a score on random ids, beside `transformers` with the same files."""
    original = load_original(path, "MarianMTModel")
    source, target = (torch.tensor(imported.rows[side]) for side in ("source", "target"))
    chance = torch.Generator().manual_seed(1)
    largest = 0.0
    for length in LENGTHS:
        ours = [torch.randint(len(SPECIALS), len(rows), (4, length), generator=chance) for rows in (source, target)]
        ours[0][:, -1], ours[1][:, 0] = EOS_ID, BOS_ID
        theirs = original(input_ids=source[ours[0]], decoder_input_ids=target[ours[1]]).logits[..., target]
        found = imported.model(*ours)
        # What only we have is not compared: it scores too low to be said.
        is_common = found > NEVER / 2
        largest = max(largest, float((theirs - found)[is_common].abs().max()))
    return largest


def marian_name(name: str) -> str:
    """What Marian calls one of our tensors.

    >>> marian_name("decoder.blocks.3.cross.query.weight")
    'model.decoder.layers.3.encoder_attn.q_proj.weight'
    """
    block = re.fullmatch(r"(encoder|decoder)\.blocks\.(\d+)\.(.+)\.(weight|bias)", name)
    if block is None:
        return f"model.{name.replace('final_norm', 'layer_norm')}"
    stack, layer, part, leaf = block.groups()
    if part not in PARTS:
        attention, _, projection = part.partition(".")
        return f"model.{stack}.layers.{layer}.{PARTS[attention]}.{PROJECTIONS[projection]}.{leaf}"
    return f"model.{stack}.layers.{layer}.{PARTS[part]}.{leaf}"
