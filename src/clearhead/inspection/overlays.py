"""A picture or words, and what a model made of its tokens, in; a picture file that shows one on the other out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from clearhead.inspection.pictures import DOTS_PER_INCH, MOST_DOTS, boxes_allowed, font_families, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OVERLAY = "inferno"
VEIL = 0.65
"""How much of the picture the weights hide."""
COLUMNS = 6
PANEL = 1.9
"""Inches."""
GROUPS = "tab20"
"""Colours of tokens that are together."""


def draw_overlays(
    path: Path,
    picture: UInt8[Tensor, "channels height width"],
    maps: Float[Tensor, "panels rows columns"],
    titles: Sequence[str],
    headline: str = "",
) -> None:
    """Draw the picture, and one panel for each map of its patches, laid over it; each map has its own scale."""
    shown, (height, width) = _image(picture), picture.shape[1:]
    with _Sheet(path, len(maps) + 1, height / width, headline) as panels:
        _plain(panels[0], shown, "picture")
        for panel, weights, title in zip(panels[1:], maps.detach().float().cpu().numpy(), titles, strict=True):
            _plain(panel, shown, title)
            most = max(float(weights.max()), 1e-12)
            extent = (-0.5, width - 0.5, height - 0.5, -0.5)
            panel.imshow(weights, cmap=OVERLAY, vmin=0, vmax=most, alpha=VEIL, extent=extent, interpolation="nearest")


def draw_trail_on_picture(
    path: Path,
    picture: UInt8[Tensor, "channels height width"],
    holders: Int[Tensor, "layers patches"],
    columns: int,
    titles: Sequence[str],
    headline: str = "",
) -> None:
    """Draw a panel for each layer: patches that are together have one colour and one border, dropped ones are white."""
    pixels = picture.float().cpu().numpy()
    patch = picture.shape[2] // columns
    with _Sheet(path, len(holders) + 1, picture.shape[1] / picture.shape[2], headline) as panels:
        _plain(panels[0], _image(picture), "picture")
        for panel, holder, title in zip(panels[1:], holders.cpu().numpy(), titles, strict=True):
            grid = np.kron(holder.reshape(-1, columns), np.ones((patch, patch), dtype=holder.dtype))
            _plain(panel, _flattened(pixels, grid), title)
            _borders(panel, grid)


def draw_trail_on_words(
    path: Path, words: Sequence[str], holders: Int[Tensor, "layers tokens"], titles: Sequence[str], headline: str = ""
) -> None:
    """Draw a row for each layer: words that are together have one colour, dropped ones are struck from the row."""
    from matplotlib import colormaps, rc_context
    from matplotlib.figure import Figure

    rows = [np.arange(len(words)), *holders.cpu().numpy()]
    size = 1.6 + 0.16 * sum(max(len(word), 2) + 1 for word in words), 0.8 + 0.42 * len(rows)
    with rc_context({"font.family": font_families(), "text.parse_math": False, "text.usetex": False}), boxes_allowed():
        figure = Figure(figsize=size, dpi=min(DOTS_PER_INCH, MOST_DOTS / max(size)), layout="constrained")
        panel = figure.subplots()
        ends = np.cumsum([max(len(word), 2) + 1 for word in words])
        for height, holder in enumerate(rows):
            sizes = np.bincount(holder[holder >= 0], minlength=len(words))
            for word, place, end in zip(words, holder, ends, strict=True):
                if place < 0:
                    continue
                middle = end - (max(len(word), 2) + 1) / 2
                colour: Any = colormaps[GROUPS](place % 20) if sizes[place] > 1 else (0, 0, 0, 0)
                box = {"boxstyle": "round,pad=0.15", "facecolor": colour, "edgecolor": "none", "alpha": 0.6}
                panel.text(middle, height, word, ha="center", va="center", fontsize=9, bbox=box)
        panel.set_xlim(0, ends[-1] if len(ends) else 1)
        panel.set_ylim(len(rows) - 0.5, -0.5)
        panel.set_yticks(range(len(rows)), ["words", *titles])
        panel.set_xticks([])
        panel.tick_params(length=0)
        for spine in panel.spines.values():
            spine.set_visible(False)
        _saved(figure, path, headline)


class _Sheet:
    """Panels side by side that are saved when all are drawn."""

    def __init__(self, path: Path, count: int, ratio: float, headline: str) -> None:
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        self._path, self._headline = path, headline
        self._settings = rc_context({"font.family": font_families(), "text.parse_math": False, "text.usetex": False})
        columns = min(count, COLUMNS)
        rows = -(-count // columns)
        size = max(PANEL * columns, 0.09 * len(headline)), (PANEL * ratio + 0.3) * rows + 0.4
        self._figure = Figure(figsize=size, dpi=min(DOTS_PER_INCH, MOST_DOTS / max(size)), layout="constrained")
        self._count, self._grid = count, (rows, columns)

    def __enter__(self) -> list[Axes]:
        self._settings.__enter__()
        panels = list(self._figure.subplots(*self._grid, squeeze=False).flat)
        for panel in panels:
            panel.axis("off")
        return panels[: self._count]

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        try:
            if kind is None:
                with boxes_allowed():
                    _saved(self._figure, self._path, self._headline)
        finally:
            self._settings.__exit__(None, None, None)


def _saved(figure: Figure, path: Path, headline: str) -> None:
    if headline:
        figure.suptitle(headline)
    save_figure(figure, path)


def _image(picture: UInt8[Tensor, "channels height width"]) -> NDArray[np.uint8]:
    """As matplotlib takes it: coloured in any case, so that weights stand out from grey."""
    pixels = picture.cpu().numpy()
    return np.moveaxis(np.repeat(pixels, 3, axis=0) if len(pixels) == 1 else pixels, 0, 2)


def _plain(panel: Axes, image: NDArray[Any], title: str) -> None:
    panel.imshow(image, interpolation="nearest")
    panel.set_title(title, fontsize=8)


def _flattened(pixels: NDArray[np.float32], grid: NDArray[Any]) -> NDArray[np.uint8]:
    """Every group in its mean colour, and white where nothing is left."""
    flat = np.full_like(pixels, 255.0)
    for place in np.unique(grid[grid >= 0]):
        here = grid == place
        flat[:, here] = pixels[:, here].mean(1, keepdims=True)
    flat = np.repeat(flat, 3, axis=0) if len(flat) == 1 else flat
    return np.moveaxis(flat.round().astype(np.uint8), 0, 2)


def _borders(panel: Axes, grid: NDArray[Any]) -> None:
    """A line wherever two neighbours are in different groups."""
    from matplotlib.collections import LineCollection

    below = [[(x - 0.5, y + 0.5), (x + 0.5, y + 0.5)] for y, x in np.argwhere(grid[1:] != grid[:-1])]
    beside = [[(x + 0.5, y - 0.5), (x + 0.5, y + 0.5)] for y, x in np.argwhere(grid[:, 1:] != grid[:, :-1])]
    panel.add_collection(LineCollection(below + beside, colors="#d62728", linewidths=0.7))
