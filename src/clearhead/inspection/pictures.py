"""Attention weights and tokens in, a picture file out."""

from __future__ import annotations

import functools
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from torch import Tensor

from clearhead.storage import storage_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

CJK_FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Zen Hei", "PingFang SC",
             "Microsoft YaHei", "SimHei", "Arial Unicode MS")  # fmt: skip
PALETTE = "viridis"
MOST_COLUMNS = 4
DOTS_PER_INCH = 130
MOST_DOTS = 10_000
"""The longest side of a picture; long sentences are drawn finer, not larger, so that memory is bounded."""


def draw_heads(
    path: Path,
    weights: Float[Tensor, "heads query key"],
    queries: Sequence[str],
    keys: Sequence[str],
    titles: Sequence[str],
    headline: str = "",
) -> None:
    """Draw one heat map per head, side by side: a row for each token that looks, a column for each that is seen."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    columns = min(len(weights), MOST_COLUMNS)
    rows = -(-len(weights) // columns)
    width, height = 1.1 + 0.42 * len(keys), 1.3 + 0.36 * len(queries)
    size = max(width * columns + 0.6, 0.11 * len(headline)), height * rows + 0.4
    # Tokens are text: `$a_1$` is no formula, whatever the user's own matplotlib settings are.
    with rc_context({"font.family": font_families(), "text.parse_math": False, "text.usetex": False}), boxes_allowed():
        figure = Figure(figsize=size, dpi=min(DOTS_PER_INCH, MOST_DOTS / max(size)), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False)
        for panel in panels.flat[len(weights) :]:
            panel.axis("off")
        used = panels.flat[: len(weights)]
        for panel, head, title in zip(used, weights.detach().float().cpu().numpy(), titles, strict=True):
            image = _heat_map(panel, head, queries, keys, title)
        figure.colorbar(image, ax=panels, shrink=0.6, aspect=30, pad=0.01, ticks=[0, 0.5, 1], label="weight")
        if headline:
            figure.suptitle(headline)
        try:
            figure.savefig(path)
        except OSError as error:
            raise storage_error(path, error) from error


def draw_changes(path: Path, changes: Mapping[str, float], meaning: str) -> None:
    """Draw a number for each head, named like decoder.2.cross.5: a panel for each kind, its layers by its heads."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    grids: dict[str, dict[tuple[int, int], float]] = {}
    for name, change in changes.items():
        stack, layer, part, head = name.split(".")
        grids.setdefault(f"{stack} {part}", {})[int(layer), int(head)] = change
    most = max((abs(change) for change in changes.values()), default=0.0) or 1.0
    widths = [1 + max(head for _, head in grid) for grid in grids.values()]
    heights = [1 + max(layer for layer, _ in grid) for grid in grids.values()]
    with rc_context({"font.family": font_families()}):
        size = (1.5 + 0.75 * sum(widths) + 0.5 * len(widths), 1.3 + 0.6 * max(heights))
        figure = Figure(figsize=size, dpi=min(DOTS_PER_INCH, MOST_DOTS / max(size)), layout="constrained")
        panels = figure.subplots(1, len(grids), squeeze=False, width_ratios=widths)[0]
        for panel, (title, grid), width, height in zip(panels, grids.items(), widths, heights, strict=True):
            cells = np.full((height, width), np.nan)
            for place, change in grid.items():
                cells[place] = change
                strong = abs(change) > 0.6 * most
                ink = "white" if strong else "black"
                panel.text(place[1], place[0], f"{change:+.3f}", ha="center", va="center", fontsize=7, color=ink)
            image = panel.imshow(cells, cmap="PuOr_r", vmin=-most, vmax=most, aspect="auto")
            panel.set_title(title, fontsize=10)
            panel.set_xticks(range(width), [f"head {head}" for head in range(width)], fontsize=8)
            panel.set_yticks(range(height), [f"layer {layer}" for layer in range(height)], fontsize=8)
            panel.tick_params(length=0)
        figure.colorbar(image, ax=list(panels), shrink=0.8, label=meaning)
        try:
            figure.savefig(path)
        except OSError as error:
            raise storage_error(path, error) from error


def draw_confusion(path: Path, labels: Sequence[str], counts: Sequence[Sequence[int]], headline: str) -> None:
    """Draw how often each true label (a row) was answered with each label (a column)."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    cells = np.array(counts)
    shares = cells / np.maximum(1, cells.sum(1, keepdims=True))
    side = 2.2 + 0.62 * len(labels)
    with rc_context({"font.family": font_families(), "text.parse_math": False, "text.usetex": False}), boxes_allowed():
        figure = Figure(figsize=(side + 0.8, side), dpi=min(DOTS_PER_INCH, MOST_DOTS / side), layout="constrained")
        panel = figure.subplots()
        image = panel.imshow(shares, cmap=PALETTE, vmin=0.0, vmax=1.0)
        for row, column in np.ndindex(cells.shape):
            ink = "black" if shares[row, column] > 0.6 else "white"
            panel.text(column, row, f"{cells[row, column]:,}", ha="center", va="center", fontsize=8, color=ink)
        panel.set_xticks(range(len(labels)), labels, rotation=60, ha="right", rotation_mode="anchor")
        panel.set_yticks(range(len(labels)), labels)
        panel.tick_params(length=0)
        panel.set_xlabel("answer")
        panel.set_ylabel("true label")
        panel.set_title(headline, fontsize=10)
        figure.colorbar(image, ax=panel, shrink=0.7, label="share of the true label")
        try:
            figure.savefig(path)
        except OSError as error:
            raise storage_error(path, error) from error


def _heat_map(panel: Axes, head: np.ndarray, queries: Sequence[str], keys: Sequence[str], title: str) -> AxesImage:
    image = panel.imshow(head, cmap=PALETTE, vmin=0.0, vmax=1.0, aspect="auto")
    panel.set_title(title, fontsize=10)
    panel.set_xticks(range(len(keys)), keys, rotation=60, ha="right", rotation_mode="anchor")
    panel.set_yticks(range(len(queries)), queries)
    panel.tick_params(length=0, labelsize=9)
    for spine in panel.spines.values():
        spine.set_visible(False)
    return image


@contextmanager
def boxes_allowed() -> Iterator[None]:
    """A sign that no font has is drawn as a box; `font_advice` says once what matplotlib would say for each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def font_advice(texts: Iterable[str]) -> str | None:
    """What to install if some signs of these texts have no picture in any font used; None if all have one."""
    needed = sorted({sign for text in texts for sign in text if sign.isprintable() and not sign.isspace()})
    missing = [sign for sign in needed if not any(ord(sign) in known for known in _drawable())]
    if not missing:
        return None
    some = " ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
    cure = "install a font that has them"
    if any("CJK" in unicodedata.name(sign, "") for sign in missing):
        cure = "install a Chinese font (on Debian or Ubuntu: apt install fonts-noto-cjk)"
    return f"drawn as boxes, for want of a font: {some}; {cure}"


@functools.cache
def _drawable() -> list[frozenset[int]]:
    """The signs that each font used has."""
    from matplotlib import font_manager

    paths = [font_manager.findfont(name) for name in font_families()]
    return [frozenset(font_manager.get_font(path).get_charmap()) for path in paths]


@functools.cache
def font_families() -> list[str]:
    """The font for labels, and behind it an installed one that knows Chinese."""
    from matplotlib import font_manager

    def chinese() -> list[str]:
        installed = {font.name for font in font_manager.fontManager.ttflist}
        return [name for name in CJK_FONTS if name in installed][:1]

    if not chinese():
        _take_in_new_fonts()
    return ["DejaVu Sans", *chinese()]


def _take_in_new_fonts() -> None:
    """Tell matplotlib of fonts installed since it made its list, which it keeps for good."""
    from matplotlib import font_manager

    listed = {font.fname for font in font_manager.fontManager.ttflist}
    for path in font_manager.findSystemFonts():
        if path not in listed:
            with suppress(OSError, RuntimeError, ValueError):
                font_manager.fontManager.addfont(path)
