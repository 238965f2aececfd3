"""Attention weights and tokens in, a picture file out."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CJK_FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Zen Hei", "PingFang SC",
             "Microsoft YaHei", "SimHei", "Arial Unicode MS")  # fmt: skip
PALETTE = "viridis"


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

    columns = min(len(weights), 4)
    rows = -(-len(weights) // columns)
    width, height = 1.1 + 0.42 * len(keys), 1.3 + 0.36 * len(queries)
    with rc_context({"font.family": font_families()}):
        figure = Figure(figsize=(width * columns, height * rows + 0.4), dpi=130, layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False)
        for panel in panels.flat[len(weights) :]:
            panel.axis("off")
        for panel, head, title in zip(panels.flat, weights.cpu().numpy(), titles, strict=False):
            _heat_map(panel, head, queries, keys, title)
        if headline:
            figure.suptitle(_plain(headline))
        figure.savefig(path)


def _heat_map(panel: Axes, head: np.ndarray, queries: Sequence[str], keys: Sequence[str], title: str) -> None:
    panel.imshow(head, cmap=PALETTE, vmin=0.0, vmax=1.0, aspect="auto")
    panel.set_title(_plain(title), fontsize=10)
    panel.set_xticks(range(len(keys)), [_plain(key) for key in keys], rotation=60, ha="right", rotation_mode="anchor")
    panel.set_yticks(range(len(queries)), [_plain(query) for query in queries])
    panel.tick_params(length=0, labelsize=9)
    for spine in panel.spines.values():
        spine.set_visible(False)


def _plain(text: str) -> str:
    """Text that matplotlib will not take for mathematics."""
    return text.replace("$", r"\$")


@functools.cache
def font_families() -> list[str]:
    """The font for labels, and behind it an installed one that knows Chinese."""
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *[name for name in CJK_FONTS if name in installed][:1]]
