"""A loaded ViT and a picture in, everything its heads looked at out, drawn on the picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from clearhead.checkpoint import write_tensors
from clearhead.data.picture_reading import read_picture
from clearhead.errors import UsageError
from clearhead.inspection.ablation import ablated
from clearhead.inspection.names import Head, all_heads, meant, named_heads
from clearhead.inspection.overlays import draw_overlays, draw_trail_on_picture
from clearhead.inspection.record import Tape, recording
from clearhead.inspection.trail import Trail, following, on_inputs, rollout
from clearhead.models.vit import VitConfig
from clearhead.run.seeing import LoadedVit
from clearhead.storage import storage_error, write_text


@dataclass(frozen=True)
class PictureInspection:
    """What a Vision Transformer's heads looked at in one picture."""

    name: str
    """The file that was looked at."""
    picture: UInt8[Tensor, "channels height width"]
    label: str
    probabilities: dict[str, float]
    tape: Tape
    trail: Trail
    heads: list[Head]
    config: VitConfig

    @property
    def rolled(self) -> Float[Tensor, "rows columns"]:
        """Where the content came from that the answer was read from, through all layers (rollout)."""
        rolled = rollout(self.tape, self.trail)
        assert rolled is not None
        return self._on_patches(rolled[None])[0]

    def maps(self, heads: str = "encoder") -> tuple[Float[Tensor, "heads rows columns"], list[str]]:
        """For each head that a name means where it looked, as seen from the class token or on average over patches."""
        chosen = meant(named_heads(self.heads), heads)
        looks = {look.layer: look for look in self.tape.of("encoder")}
        found = []
        for head in chosen:
            look = looks[head.layer]
            weights = look.weights[0, look.heads.index(head.number)][None].double().cpu()
            found.append(self._on_patches(on_inputs(weights, self.trail.before(head.layer)[0]))[0])
        return torch.stack(found), [head.name for head in chosen]

    def _on_patches(self, weights: Float[Tensor, "some input input"]) -> Float[Tensor, "some rows columns"]:
        if self.config.has_class_token:
            seen = weights[:, 0, 1:]
        else:
            seen = weights.sum(1) / (weights.sum(-1) > 0).sum(-1, keepdim=True).clamp(min=1)
        return seen.unflatten(-1, (self.config.rows, self.config.columns))

    def save(self, path: str | Path, *, heads: str = "encoder") -> Path:
        """Write a file of the kind that its name ends with; `heads` says which a picture shows, such as encoder.2.3."""
        path = Path(path)
        if path.suffix.lower() not in FORMATS:
            raise UsageError(f"{path}: a name that ends with one of {', '.join(FORMATS)} says what to write")
        try:
            FORMATS[path.suffix.lower()](self, path, heads)
        except OSError as error:
            raise storage_error(path, error) from error
        return path

    def save_trail(self, path: str | Path) -> Path:
        """Draw which patches were merged or dropped in each layer."""
        holders = torch.stack([holder[0] for holder in self.trail.holders])
        holders = holders[:, 1:] if self.config.has_class_token else holders
        titles = [f"layer {layer}: {left} left" for layer, left in enumerate(self.trail.left())]
        draw_trail_on_picture(Path(path), self.picture, holders, self.config.columns, titles, self.headline)
        return Path(path)

    @property
    def headline(self) -> str:
        """The picture and what it was taken for."""
        return f"{self.name}: {self.label} ({100 * self.probabilities[self.label]:.0f} %)"


@torch.no_grad()
def inspect(loaded: LoadedVit, path: Path, *, ablate: Sequence[str] = ()) -> PictureInspection:
    """Look at a picture, and record every head and what became of every token; `ablate` names heads to switch off."""
    pixels, _ = read_picture(path, loaded.form)
    picture = torch.from_numpy(pixels.copy())
    with ablated(loaded.model, *ablate), recording(loaded.model) as tape, following(loaded.model) as trail:
        logits = loaded.model(picture[None].to(loaded.device))[0]
    probs = dict(zip(loaded.labels, logits.float().softmax(-1).tolist(), strict=True))
    label = max(probs, key=probs.__getitem__)
    heads = all_heads(loaded.model)
    return PictureInspection(path.name, picture, label, probs, tape, trail, heads, loaded.model.config)


def _picture(found: PictureInspection, path: Path, heads: str) -> None:
    maps, titles = found.maps(heads)
    maps = torch.cat([maps, found.rolled[None].to(maps)])
    draw_overlays(path, found.picture, maps, [*titles, "all layers (rollout)"], found.headline)


def _json(found: PictureInspection, path: Path, heads: str) -> None:
    maps, titles = found.maps(heads)
    tree: dict[str, Any] = {
        "picture": found.name,
        "label": found.label,
        "probabilities": found.probabilities,
        "rows": found.config.rows,
        "columns": found.config.columns,
        "heads": {title: weights.tolist() for title, weights in zip(titles, maps, strict=True)},
        "rollout": found.rolled.tolist(),
        "tokens_left": found.trail.left(),
        "groups": [found.trail.groups(layer) for layer in range(len(found.trail.holders))],
        "dropped": found.trail.dropped(),
    }
    write_text(path, json.dumps(tree, ensure_ascii=True) + "\n")


def _tensors(found: PictureInspection, path: Path, heads: str) -> None:
    """One tensor for each layer, for tokens may become fewer: (batch, heads, query, key), and what became of tokens."""
    tensors = {f"encoder_attention.{look.layer}": look.weights.contiguous().cpu() for look in found.tape.of("encoder")}
    tensors |= {f"holder.{layer}": holder.contiguous() for layer, holder in enumerate(found.trail.holders)}
    write_tensors(path, tensors, {"label": found.label})


FORMATS: dict[str, Callable[[PictureInspection, Path, str], None]] = {
    ".png": _picture,
    ".svg": _picture,
    ".json": _json,
    ".safetensors": _tensors,
}
