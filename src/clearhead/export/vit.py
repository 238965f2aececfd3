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
from clearhead.export.downloaded import WEIGHTS, Downloaded, Settings, is_a, read_settings
from clearhead.export.imported import Imported
from clearhead.export.names import encoder_sizes, in_block, labels_of
from clearhead.export.original import load_original
from clearhead.models.vit import Vit, VitConfig

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
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "layer_norm_eps": 1e-12, "num_channels": 3,
}  # fmt: skip
"""What transformers take where a config says nothing."""
SIDES = {"image_size": 224, "patch_size": 16}
"""The same for what may be one number or two."""
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
    pictures = read_settings(downloaded.path / "preprocessor_config.json")
    model = Vit(_config(downloaded, get, pictures))
    restore_model(model, _tensors(model, downloaded), downloaded.path / WEIGHTS)
    return Imported(model.eval(), None, None, {}, _differences_of_pictures(pictures))


def _config(downloaded: Downloaded, get: dict[str, Any], pictures: Settings) -> VitConfig:
    (height, width), (patch, other) = (_pair(downloaded.settings, name) for name in SIDES)
    if patch != other or get["num_channels"] not in (1, 3):
        shape = f"patches of {patch} x {other} and {get['num_channels']} channels"
        raise DataError(f"{downloaded.path} has {shape}: ours are square, and pictures have 1 channel or 3")
    labels = labels_of(downloaded.setting("id2label", {}), len(downloaded.tensor("classifier.weight")))
    if len(labels) < 2:
        raise DataError(f"{downloaded.path} does not answer with one of several labels, as our ViT does")
    mean, spread = _order(pictures, get["num_channels"])
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


def _pair(settings: Settings, name: str) -> tuple[int, int]:
    """Height and width, which may be one number."""
    sides = settings.tree.get(name)
    if isinstance(sides, list) and len(sides) == 2 and all(is_a(int, side) for side in sides):
        return sides[0], sides[1]
    side = settings.get(name, SIDES[name])
    return side, side


def _order(pictures: Settings, channels: int) -> tuple[list[float], list[float]]:
    """The mean of each channel, which is taken off, and what is divided by then."""
    if not pictures.get("do_rescale", True) or abs(pictures.get("rescale_factor", BYTE) - BYTE) > 1e-6:
        raise DataError(f"{pictures.path}: its pictures are not scaled to values from 0 to 1, as ours are")
    if not pictures.get("do_normalize", True):
        return [0.0] * channels, [1.0] * channels
    mean, spread = (_by_channel(pictures, name, channels) for name in ("image_mean", "image_std"))
    if not all(spread):
        raise pictures.unfit("image_std", "cannot be divided by")
    return mean, spread


def _by_channel(pictures: Settings, name: str, channels: int) -> list[float]:
    values = pictures.get(name, [MIDDLE] * channels)
    if len(values) != channels or not all(is_a(float, value) for value in values):
        raise pictures.unfit(name, f"should be {channels} numbers, one for each channel")
    return [float(value) for value in values]


def _differences_of_pictures(pictures: Settings) -> list[str]:
    """How its makers make pictures fit, where we do it differently."""
    notes = []
    way = pictures.get("resample", BILINEAR)
    if way != BILINEAR:
        notes.append(f"its makers resize pictures by {RESAMPLING.get(way, way)} interpolation, and we by bilinear")
    if pictures.get("do_center_crop", False):
        notes.append("its makers cut the middle out of pictures that do not fit, and we resize them")
    return notes


def _tensor(downloaded: Downloaded, name: str) -> Tensor:
    return downloaded.tensor(f"vit.{name}", name)


def _places(downloaded: Downloaded, count: int) -> tuple[Tensor, Tensor]:
    """The positions of its class token and of its patches."""
    places = _tensor(downloaded, "embeddings.position_embeddings")[0]
    if len(places) != count:
        reason = f"with patch_size it makes {count} places, and its weights have {len(places)}"
        raise downloaded.settings.unfit("image_size", f"does not fit: {reason}")
    return places[:1], places[1:]


def _tensors(model: Vit, downloaded: Downloaded) -> dict[str, Tensor]:
    first, places = _places(downloaded, model.config.num_tokens)
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
