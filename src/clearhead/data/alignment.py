"""Two parallel files, or their line lengths, come in; the line from which they no longer fit each other goes out.

Translations of one another have similar lengths, so the log of their ratio stays near its median. Where a line is lost,
every later pair is off, and moving one file by a line or two fits better again: that is what is looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data.lines import MAX_LINE_BYTES, TextFile
from clearhead.data.reasons import Reason

Lengths = NDArray[np.int32]

_WINDOW = 100
# Gain per line over a window. Tatoeba and Multi30k give -0.2 to -0.3 when aligned, the same above zero when a line is
# lost, and at most 0.02 when sorted by length (where lengths tell nothing).
_CLEAR_GAIN = 0.06
_WORST = 2.0
_CHUNK = 1 << 20


class Break(NamedTuple):
    """From `line` on (counted from 1) source line i + shift belongs to target line i."""

    line: int
    shift: int


def first_break(source: Lengths, target: Lengths, shifts: Sequence[int]) -> Break | None:
    """The first place from which one of the shifts fits a whole window of lines clearly better than no shift."""
    typical = _typical_ratio(source, target)
    for start in range(0, min(len(source), len(target)), _CHUNK):
        part = slice(start, start + _CHUNK + _WINDOW)
        gains = {shift: _gain(source, target, shift, typical, part) for shift in shifts}
        places = {shift: place for shift, gain in gains.items() if (place := _turning_point(gain)) is not None}
        if places:
            first = min(places.values())
            best = max(places, key=lambda shift: gains[shift][first : first + _WINDOW].sum())
            return Break(start + places[best] + 1, best)
    return None


def single_break(source: Lengths, target: Lengths) -> Break | None:
    """The best one place to move one file so that both end together, or None if it explains nothing."""
    shift = len(source) - len(target)
    gain = _gain(source, target, shift, _typical_ratio(source, target), slice(None))
    place = _lowest(gain)
    after = gain[place:]
    is_clear = len(after) > 0 and after.sum() > max(
        1.0, _CLEAR_GAIN * len(after), 2.0 * after.std() * len(after) ** 0.5
    )
    return Break(place + 1, shift) if is_clear else None


def explain_unequal(source: TextFile, target: TextFile) -> str:
    """One sentence about two files with different numbers of lines: how many each has, and where to look."""
    lengths = _line_lengths(source), _line_lengths(target)
    unit = "line" if source.num_lines == 1 else "lines"
    counts = f"{source.path} has {source.num_lines:,} {unit} but {target.path} has {target.num_lines:,}"
    found = first_break(*lengths, (-3, -2, -1, 1, 2, 3)) or single_break(*lengths)
    if found:
        poorer = target if found.shift > 0 else source
        return f"{counts}: they part around line {found.line:,}, where {poorer.path} seems to lack a line"
    blank = first_one_sided_blank(*lengths)
    if blank:
        return f"{counts}: the first suspicious line is {blank:,}, which is blank in only one of them"
    shorter = min(source, target, key=lambda file: file.num_lines)
    return f"{counts}: no line stands out, so {shorter.path} may be cut short after line {shorter.num_lines:,}"


def first_one_sided_blank(source: Lengths, target: Lengths) -> int | None:
    """The first line, counted from 1, that is blank in one file only."""
    shorter = min(len(source), len(target))
    blank = np.flatnonzero((source[:shorter] == 0) != (target[:shorter] == 0))
    return int(blank[0]) + 1 if len(blank) else None


def _line_lengths(file: TextFile) -> Lengths:
    sizes = (MAX_LINE_BYTES if isinstance(raw, Reason) else len(raw.strip()) for raw in file.raw_lines())
    return np.fromiter(sizes, dtype=np.int32)


def _typical_ratio(source: Lengths, target: Lengths) -> float:
    shorter = min(len(source), len(target), _CHUNK)
    return float(np.median(_log_ratio(source[:shorter], target[:shorter]))) if shorter else 0.0


def _log_ratio(source: Lengths, target: Lengths) -> NDArray[np.float32]:
    return np.log1p(source.astype(np.float32)) - np.log1p(target.astype(np.float32))


def _gain(source: Lengths, target: Lengths, shift: int, typical: float, part: slice) -> NDArray[np.float32]:
    """How much better each line of a part fits when one file is moved by `shift` lines."""
    moved_source, moved_target = source[max(shift, 0) :], target[max(-shift, 0) :]
    length = min(len(moved_source), len(moved_target))
    unmoved = _misfit(source[:length][part], target[:length][part], typical)
    return unmoved - _misfit(moved_source[:length][part], moved_target[:length][part], typical)


def _misfit(source: Lengths, target: Lengths, typical: float) -> NDArray[np.float32]:
    return np.minimum(np.abs(_log_ratio(source, target) - np.float32(typical)), np.float32(_WORST))


def _turning_point(gain: NDArray[np.float32]) -> int | None:
    """Where the gain turns positive and stays so for a window."""
    if len(gain) < _WINDOW:
        return None
    total = np.concatenate([[0.0], np.cumsum(gain, dtype=np.float64)])
    windows = np.flatnonzero(total[_WINDOW:] - total[:-_WINDOW] > _CLEAR_GAIN * _WINDOW)
    if not len(windows):
        return None
    first = max(0, int(windows[0]) - _WINDOW)
    return first + _lowest(gain[first : int(windows[0]) + _WINDOW])


def _lowest(gain: NDArray[np.float32]) -> int:
    """The place before which moving does the most harm and after which it does the most good."""
    return int(np.argmin(np.concatenate([[0.0], np.cumsum(gain, dtype=np.float64)])))
