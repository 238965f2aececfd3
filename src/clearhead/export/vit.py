"""A Vision Transformer as Hugging Face stores it in, ours with the same weights out.

Its class token has a position, which is added to ours once and for all. How pictures are put in order comes from
`preprocessor_config.json`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.checkpoint import named_tensors, restore_model
from clearhead.config import build
from clearhead.errors import DataError
from clearhead.export.downloaded import WEIGHTS, Downloaded
from clearhead.export.imported import Imported
from clearhead.export.names import encoder_sizes, in_block, labels_of
from clearhead.export.original import load_original
from clearhead.models.vit import Vit, VitConfig
from clearhead.storage import read_json

PARTS = {
    "attention.query": "attention.attention.query",
    "attention.key": "attention.attention.key",
    "attention.value": "attention.attention.value",
    "attention.output": "attention.output.dense",
    "around_attention.norm": "layernorm_before",
    "around_feedforward.norm": "layernorm_after",
    "feedforward.inner": "intermediate.dense",
    "feedforward.outer": "output.dense",
}
OUTSIDE = {"encoder.final_norm.weight": "layernorm.weight", "encoder.final_norm.bias": "layernorm.bias"}
DEFAULTS: dict[str, Any] = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "layer_norm_eps": 1e-12, "image_size": 224,
    "patch_size": 16, "num_channels": 3,
}  # fmt: skip
"""What transformers take where a config says nothing."""
MIDDLE = 0.5
"""Mean and spread of every channel, where nothing is said of them."""
BYTE = 1 / 255
"""What values are multiplied by so that they go from 0 to 1."""
RESAMPLING = {0: "nearest", 1: "Lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "Hamming"}
BILINEAR = 2
"""Pillow's numbers of ways to resize, and ours."""


def import_vit(downloaded: Downloaded) -> Imported:
    """Read a Vision Transformer that labels pictures."""
    if not downloaded.has("classifier.weight"):
        raise DataError(
            f"{downloaded.path} has no head that labels pictures (classifier.weight), which our ViT cannot be without: "
            "take one that was trained on labels"
        )
    get = {name: downloaded.setting(name, default) for name, default in DEFAULTS.items()}
    path = downloaded.path / "preprocessor_config.json"
    pictures = read_json(path) if path.is_file() else {}
    model = Vit(_config(downloaded, get, pictures))
    restore_model(model, _tensors(model, downloaded), downloaded.path / WEIGHTS)
    return Imported(model.eval(), None, None, {}, _differences_of_pictures(pictures))


def _config(downloaded: Downloaded, get: dict[str, Any], pictures: dict[str, Any]) -> VitConfig:
    (height, width), (patch, other) = _pair(get["image_size"]), _pair(get["patch_size"])
    if patch != other or get["num_channels"] not in (1, 3):
        shape = f"patches of {patch} x {other} and {get['num_channels']} channels"
        raise DataError(f"{downloaded.path} has {shape}: ours are square, and pictures have 1 channel or 3")
    labels = labels_of(downloaded.config, len(downloaded.tensor("classifier.weight")))
    if len(labels) < 2:
        raise DataError(f"{downloaded.path} does not answer with one of several labels, as our ViT does")
    mean, spread = _order(downloaded.path, pictures, get["num_channels"])
    tree = {
        "labels": labels,
        "height": height,
        "width": width,
        "channels": get["num_channels"],
        "mean": mean,
        "spread": spread,
        "patch": patch,
        **encoder_sizes(get),
        "residual": "pre",
        "feedforward": downloaded.feedforward("hidden_act", "gelu"),
        "positions": "learned",
        "pooling": "first",
    }
    return build(VitConfig, tree, str(downloaded.path / "config.json"))


def _pair(size: Any) -> tuple[int, int]:
    """Height and width, which may be one number."""
    return (size[0], size[1]) if isinstance(size, list | tuple) else (size, size)


def _order(path: Path, pictures: dict[str, Any], channels: int) -> tuple[list[float], list[float]]:
    """The mean of each channel, which is taken off, and what is divided by then."""
    factor = pictures.get("rescale_factor") or BYTE
    if pictures.get("do_rescale") is False or abs(factor - BYTE) > 1e-6:
        raise DataError(f"{path}: its pictures are not scaled to values from 0 to 1, as ours are")
    if pictures.get("do_normalize") is False:
        return [0.0] * channels, [1.0] * channels
    found = (pictures.get(name) or [MIDDLE] * channels for name in ("image_mean", "image_std"))
    mean, spread = ([float(value) for value in values] for values in found)
    return mean, spread


def _differences_of_pictures(pictures: dict[str, Any]) -> list[str]:
    """How its makers make pictures fit, where we do it differently."""
    notes = []
    way = pictures.get("resample", BILINEAR)
    if way != BILINEAR:
        notes.append(f"its makers resize pictures by {RESAMPLING.get(way, way)} interpolation, and we by bilinear")
    if pictures.get("do_center_crop"):
        notes.append("its makers cut the middle out of pictures that do not fit, and we resize them")
    return notes


def _tensor(downloaded: Downloaded, name: str) -> Tensor:
    return downloaded.tensor(f"vit.{name}", name)


def _tensors(model: Vit, downloaded: Downloaded) -> dict[str, Tensor]:
    first, places = _tensor(downloaded, "embeddings.position_embeddings")[0].split([1, model.config.num_tokens - 1])
    projection = "embeddings.patch_embeddings.projection"
    found = {
        "patches.weight": _tensor(downloaded, f"{projection}.weight").flatten(1),
        "patches.bias": _tensor(downloaded, f"{projection}.bias"),
        "class_token.weight": _tensor(downloaded, "embeddings.cls_token")[0, 0] + first[0],
        "grid.weight": places,
        "output.weight": downloaded.tensor("classifier.weight"),
        "output.bias": downloaded.tensor("classifier.bias"),
    }
    for name, tensor in named_tensors(model).items():
        if name.startswith("encoder."):
            theirs = in_block(name, "encoder.layer", PARTS) or OUTSIDE[name]
            # Without qkv_bias, it has none.
            is_there = downloaded.has(f"vit.{theirs}", theirs) or not theirs.endswith(".bias")
            found[name] = _tensor(downloaded, theirs) if is_there else torch.zeros_like(tensor)
    return found


@torch.inference_mode()
def differences(path: Path, imported: Imported) -> float:
    """The largest difference of a score on random pictures, beside transformers with the same files."""
    model, original = imported.model, load_original(path, "ViTForImageClassification")
    assert isinstance(model, Vit)
    config, chance = model.config, torch.Generator().manual_seed(1)
    shape = (4, config.channels, config.height, config.width)
    pictures = torch.randint(256, shape, generator=chance, dtype=torch.uint8)
    given = (pictures.float() / 255 - model.mean) / model.spread
    return float((original(pixel_values=given).logits - model(pictures)).abs().max())
