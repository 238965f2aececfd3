"""Attention weights and tokens in, a picture file out."""

from __future__ import annotations

import functools
import io
import math
import re
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor

from clearhead.errors import UsageError
from clearhead.storage import storage_error, write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

ENDINGS = (".png", ".svg", ".pdf")
"""Of the names of pictures."""
CJK_FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Zen Hei", "PingFang SC",
             "Microsoft YaHei", "SimHei", "Arial Unicode MS")  # fmt: skip
RAMP = ("#f2f6f9", "#bedeea", "#83c8d0", "#4fadc6", "#148ebe", "#006eb3", "#1b49a3", "#252a80", "#210a5b")
"""The colours of the page in equal steps, from nothing to everything: lightness falls in a straight line ..."""
LIFT = 0.7
"""... and small weights are lifted a little, as they are there."""
CELL, SMALL_CELL = (0.42, 0.36), (0.31, 0.28)
"""Inches across and down: of a head by itself, and of one among several."""
DOTS_PER_INCH = 130
MOST_DOTS = 10_000
"""The longest side of a picture; long sentences are drawn finer, not larger, so that memory is bounded."""
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""Characters that no XML may hold: one of them makes a whole file unreadable."""


def draw_heads(
    path: Path,
    weights: Float[Tensor, "heads query key"],
    queries: Sequence[str],
    keys: Sequence[str],
    titles: Sequence[str],
    headline: str = "",
    columns: int | None = None,
) -> None:
    """Draw one heat map per head, `columns` side by side: a row for each token that looks, a column for each seen."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    columns = min(len(weights), columns or math.ceil(math.sqrt(len(weights))))
    rows = -(-len(weights) // columns)
    across, down = CELL if len(weights) == 1 else SMALL_CELL
    width, height = 1.1 + across * len(keys), 1.3 + down * len(queries)
    lines = headline.split("\n")
    size = max(width * columns + 0.6, 0.11 * max(map(len, lines))), height * rows + 0.2 + 0.2 * len(lines)
    # Tokens are text: `$a_1$` is no formula, whatever the user's own matplotlib settings are.
    with rc_context({"font.family": font_families(), "text.parse_math": False, "text.usetex": False}), boxes_allowed():
        figure = Figure(figsize=size, dpi=min(DOTS_PER_INCH, MOST_DOTS / max(size)), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False)
        for panel in panels.flat[len(weights) :]:
            panel.axis("off")
        used = panels.flat[: len(weights)]
        for panel, head, title in zip(used, weights.detach().float().cpu().numpy(), titles, strict=True):
            image = _heat_map(panel, head, queries, keys, title, 9 if len(weights) == 1 else 8)
        figure.colorbar(image, ax=panels, shrink=0.6, aspect=30, pad=0.01, ticks=[0, 0.5, 1], label="weight")
        if headline:
            figure.suptitle(headline)
        save_figure(figure, path)


class Changes(NamedTuple):
    """What changes without each head, named like decoder.2.cross.5."""

    meaning: str
    of: Mapping[str, float]
    useful: Literal[-1, 1]
    """The sign of the change without a head that is of use."""
    digits: int = 3


def draw_changes(path: Path, rows: Sequence[Changes]) -> None:
    """Draw numbers for each head, in a row of panels for each kind of number: a panel has its layers by its heads."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    tables = [_by_kind(row.of) for row in rows]
    sizes = {
        kind: (1 + max(at[0] for at in cells), 1 + max(at[1] for at in cells)) for kind, cells in tables[0].items()
    }
    deepest, widths = max(size[0] for size in sizes.values()), [size[1] for size in sizes.values()]
    with rc_context({"font.family": font_families()}):
        size = (1.5 + 0.75 * sum(widths) + 0.5 * len(widths), 0.3 + (0.9 + 0.45 * deepest) * len(rows))
        figure = Figure(figsize=size, dpi=min(DOTS_PER_INCH, MOST_DOTS / max(size)), layout="constrained")
        panels = figure.subplots(len(rows), len(sizes), squeeze=False, width_ratios=widths)
        for line, row, table in zip(panels, rows, tables, strict=True):
            most = max((abs(change) for change in row.of.values()), default=0.0) or 1.0
            for panel, (kind, cells) in zip(line, table.items(), strict=True):
                image = _changes_of(panel, kind, cells, sizes[kind], row, most)
            figure.colorbar(image, ax=list(line), shrink=0.8, label=row.meaning)
        figure.suptitle("without one head at a time: blue where it was of use", fontsize=11)
        save_figure(figure, path)


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
        image = panel.imshow(shares, cmap=palette(), vmin=0.0, vmax=1.0)
        for row, column in np.ndindex(cells.shape):
            ink = "white" if shares[row, column] > 0.45 else "black"
            panel.text(column, row, f"{cells[row, column]:,}", ha="center", va="center", fontsize=8, color=ink)
        panel.set_xticks(range(len(labels)), labels, rotation=60, ha="right", rotation_mode="anchor")
        panel.set_yticks(range(len(labels)), labels)
        panel.tick_params(length=0)
        panel.set_xlabel("answer")
        panel.set_ylabel("true label")
        panel.set_title(headline, fontsize=10)
        figure.colorbar(image, ax=panel, shrink=0.7, label="share of the true label")
        save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as the kind of picture that its name ends with."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"{path}: a name that ends with one of {', '.join(ENDINGS)} says what to draw")
    try:
        if path.suffix.lower() == ".svg":
            # Beside the outlines of its letters, matplotlib writes every text down as it is.
            drawn = io.StringIO()
            figure.savefig(drawn, format="svg")
            write_text(path, _NO_XML.sub("\ufffd", drawn.getvalue()))
        else:
            figure.savefig(path)
    except OSError as error:
        raise storage_error(path, error) from error


def _by_kind(changes: Mapping[str, float]) -> dict[str, dict[tuple[int, int], float]]:
    """The changes of each kind of attention, by layer and head."""
    kinds: dict[str, dict[tuple[int, int], float]] = {}
    for name, change in changes.items():
        stack, layer, part, head = name.split(".")
        kinds.setdefault(f"{stack} {part}", {})[int(layer), int(head)] = change
    return kinds


def _changes_of(
    panel: Axes, kind: str, cells: Mapping[tuple[int, int], float], size: tuple[int, int], row: Changes, most: float
) -> AxesImage:
    values = np.full(size, np.nan)
    for place, change in cells.items():
        values[place] = change
        ink = "white" if abs(change) > 0.6 * most else "black"
        written = f"{change:+.{row.digits}f}".replace("-", "\u2212")
        panel.text(place[1], place[0], written, ha="center", va="center", fontsize=7, color=ink)
    # What is of use is blue, whichever way it changes.
    image = panel.imshow(values, cmap="RdBu" if row.useful > 0 else "RdBu_r", vmin=-most, vmax=most, aspect="auto")
    panel.set_title(kind, fontsize=10)
    panel.set_xticks(range(size[1]), [f"head {head}" for head in range(size[1])], fontsize=8)
    panel.set_yticks(range(size[0]), [f"layer {layer}" for layer in range(size[0])], fontsize=8)
    panel.tick_params(length=0)
    for spine in panel.spines.values():
        spine.set_visible(False)
    return image


def _heat_map(
    panel: Axes, head: np.ndarray, queries: Sequence[str], keys: Sequence[str], title: str, letters: int
) -> AxesImage:
    from matplotlib.colors import PowerNorm

    image = panel.imshow(head, cmap=palette(), norm=PowerNorm(LIFT, 0.0, 1.0), aspect="auto")
    panel.set_title(title, fontsize=10)
    panel.set_xticks(range(len(keys)), keys, rotation=60, ha="right", rotation_mode="anchor")
    panel.set_yticks(range(len(queries)), queries)
    panel.tick_params(length=0, labelsize=letters)
    for spine in panel.spines.values():
        spine.set_visible(False)
    return image


@functools.cache
def palette() -> LinearSegmentedColormap:
    """The colours of weights."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("clearhead", RAMP)


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
