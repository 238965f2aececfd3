"""A source of raw pairs comes in; out go a verdict on every pair, a report for people, and the pairs worth keeping.

The doctor reads once and remembers numbers, not texts: a verdict, two 64-bit hashes and two lengths, 25 bytes each, so
that ten million pairs fit into memory. Whoever needs the texts reads the source again through `kept_pairs`. What was
found in many pairs is kept on disk, so that a run that goes on, or the next process of many, need not read them again.
"""

from __future__ import annotations

import contextlib
import itertools
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data import columns
from clearhead.data.alignment import first_break
from clearhead.data.columns import ColumnWriter, read_columns
from clearhead.data.corpus import cache_key
from clearhead.data.limits import Limits, judge
from clearhead.data.reasons import REASONS, Reason
from clearhead.data.report import Leakage, Report, count_dropped, measure
from clearhead.data.sources import PairSource
from clearhead.errors import DataError, MissingInputError, StorageError, choose

Hashes = NDArray[np.uint64]
Progress = Callable[[int], None]

WORTH_STORING = 100_000
"""Fewer pairs are read again sooner than found on disk."""

_AT_ONCE = 500
_PROGRESS_EVERY = 10_000
_CHUNK = 1 << 20
_ODD = 0x9E3779B97F4A7C15


@dataclass(frozen=True, eq=False)
class Checkup:
    """The doctor's findings; every array has one entry per pair, in the order of the source."""

    report: Report
    reasons: NDArray[np.uint8]
    """A `Reason` for each pair; 0 means kept."""
    source_hashes: Hashes
    """A hash of each source text without outer whitespace; that of the empty text if a line could not be read."""
    target_hashes: Hashes
    """The same for each target text."""
    validation: Checkup | None = None
    """The findings in the validation source, if one was given."""

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which pairs are kept."""
        return self.reasons == Reason.KEPT


def check(
    source: PairSource,
    limits: Limits,
    validation: PairSource | None = None,
    progress: Progress | None = None,
    cache: Path | None = None,
) -> Checkup:
    """Read all pairs once and judge each; `progress` is told from time to time how many are done.

    With a folder for a `cache`, what is found in a large source is stored there, and taken from there the next time.
    """
    found, notes = _read(source, limits, progress) if cache is None else _recall(source, limits, progress, cache)
    _refuse_if_nothing_is_kept(source.name, found)
    seen = check(validation, limits, progress=progress, cache=cache) if validation is not None else None
    report = Report(
        name=source.name,
        total=len(found.reasons),
        kept=int(np.count_nonzero(found.reasons == Reason.KEPT)),
        dropped=count_dropped(found.reasons),
        source_lengths=measure(found.source_lengths[found.reasons == Reason.KEPT]),
        target_lengths=measure(found.target_lengths[found.reasons == Reason.KEPT]),
        leakage=_leakage(found, seen) if seen else None,
        notes=(*notes, *_notes_on_alignment(found), *(seen.report.notes if seen else ())),
    )
    return Checkup(report, found.reasons, found.source_hashes, found.target_hashes, seen)


def kept_pairs(source: PairSource, checkup: Checkup) -> Iterator[tuple[int, str, str]]:
    """Read the source again: line number, source and target of each kept pair, without outer whitespace."""
    reasons = checkup.reasons.tobytes()
    total = len(reasons)
    number = 0
    for number, source_text, target_text, _ in source.pairs():
        if number > total:
            break
        if reasons[number - 1] == Reason.KEPT:
            if source_text is None or target_text is None:
                raise DataError(f"{source.name} has changed since it was checked: line {number:,} is no longer usable")
            yield number, source_text.strip(), target_text.strip()
    if number != total:
        raise DataError(f"{source.name} has changed since it was checked: it had {total:,} pairs then")


def hold_out(
    checkup: Checkup, amount: int | float | None = None, seed: int = 0, by: str = "source"
) -> NDArray[np.bool_]:
    """Choose kept pairs for validation (True): at most a count, or a share below 1, or 5 % and at most 2,000.

    Pairs with the same text on the `by` side go together, so that validation stays unseen on that side. The choice
    depends on the texts and the seed, not on the order of the pairs.
    """
    keys = _scramble(choose(HOLD_OUT_SIDES, by, "side to hold out by")(checkup), seed)
    groups, sizes = np.unique(keys[checkup.kept], return_counts=True)
    kept = int(sizes.sum())
    count = _hold_out_count(amount, kept)
    sizes[sizes > count] = 0
    chosen = groups[(sizes > 0) & (np.cumsum(sizes) <= count)]
    if not len(chosen):
        raise DataError(f"cannot hold out {count:,} of {kept:,} pairs: there are too few different {by} texts")
    return checkup.kept & _is_among(keys, chosen)


class _Found(NamedTuple):
    reasons: NDArray[np.uint8]
    source_hashes: Hashes
    target_hashes: Hashes
    source_lengths: NDArray[np.int32]
    target_lengths: NDArray[np.int32]


def _recall(source: PairSource, limits: Limits, progress: Progress | None, cache: Path) -> tuple[_Found, list[str]]:
    directory = cache / cache_key("found", source.fingerprint(), limits.model_dump_json(), str(columns.FORMAT_VERSION))
    with contextlib.suppress(MissingInputError, StorageError):
        return _stored(directory)
    found, notes = _read(source, limits, progress)
    if len(found.reasons) < WORTH_STORING:
        return found, notes
    with ColumnWriter(directory, {name: column.dtype.str for name, column in found._asdict().items()}) as writer:
        for name, column in found._asdict().items():
            writer.append(name, column.data)
        writer.finish({"notes": notes})
    return _stored(directory)


def _stored(directory: Path) -> tuple[_Found, list[str]]:
    arrays, facts = read_columns(directory)
    return _Found(**arrays), facts["notes"]


def _read(source: PairSource, limits: Limits, progress: Progress | None) -> tuple[_Found, list[str]]:
    reasons = bytearray()
    hashes = bytearray(), bytearray()
    lengths = array("i"), array("i")
    pairs = source.pairs()
    while chunk := list(itertools.islice(pairs, _AT_ONCE)):
        texts = [(pair.source or "").strip() for pair in chunk], [(pair.target or "").strip() for pair in chunk]
        reasons.extend(
            judge(one, other, limits) if pair.reason is Reason.KEPT else pair.reason
            for pair, one, other in zip(chunk, *texts, strict=True)
        )
        for side in (0, 1):
            hashes[side].extend(b"".join([blake2b(text.encode(), digest_size=8).digest() for text in texts[side]]))
            lengths[side].extend(map(len, texts[side]))
        if progress and len(reasons) % _PROGRESS_EVERY == 0:
            progress(len(reasons))
    if progress:
        progress(len(reasons))
    found = _Found(
        np.frombuffer(reasons, dtype=np.uint8),
        np.frombuffer(hashes[0], dtype="<u8"),
        np.frombuffer(hashes[1], dtype="<u8"),
        np.frombuffer(lengths[0], dtype=np.int32),
        np.frombuffer(lengths[1], dtype=np.int32),
    )
    if limits.drop_duplicates:
        _mark_duplicates(found)
    return found, source.notes()


def _pair_keys(source_hashes: Hashes, target_hashes: Hashes) -> Hashes:
    keys = source_hashes * np.uint64(_ODD)
    keys += target_hashes
    return keys


def _is_among(keys: Hashes, few: Hashes) -> NDArray[np.bool_]:
    """Which keys occur among a few sorted ones; unlike `np.isin` this does not copy and sort the many."""
    found = np.zeros(len(keys), dtype=np.bool_)
    if len(few):
        for start in range(0, len(keys), _CHUNK):
            part = keys[start : start + _CHUNK]
            place = np.minimum(np.searchsorted(few, part), len(few) - 1)
            found[start : start + _CHUNK] = few[place] == part
    return found


def _mark_duplicates(found: _Found) -> None:
    keys = _pair_keys(found.source_hashes, found.target_hashes)
    is_kept = found.reasons == Reason.KEPT
    in_order = keys[is_kept]
    in_order.sort()
    repeated = np.unique(in_order[1:][in_order[1:] == in_order[:-1]])
    candidates = np.flatnonzero(is_kept & _is_among(keys, repeated))
    _, first = np.unique(keys[candidates], return_index=True)
    found.reasons[np.delete(candidates, first)] = Reason.DUPLICATE


def _leakage(found: _Found, seen: Checkup) -> Leakage:
    is_trained = found.reasons == Reason.KEPT

    def shared(trained: Hashes, held: Hashes) -> int:
        both = trained[is_trained & _is_among(trained, np.unique(held))]
        return int(np.count_nonzero(_is_among(held, np.unique(both))))

    held_source, held_target = seen.source_hashes[seen.kept], seen.target_hashes[seen.kept]
    pairs = _pair_keys(found.source_hashes, found.target_hashes)
    return Leakage(
        validation_name=seen.report.name,
        validation_pairs=seen.report.kept,
        same_source=shared(found.source_hashes, held_source),
        same_target=shared(found.target_hashes, held_target),
        same_pair=shared(pairs, _pair_keys(held_source, held_target)),
    )


def _notes_on_alignment(found: _Found) -> list[str]:
    broken = first_break(found.source_lengths, found.target_lengths, (-2, -1, 1, 2))
    if broken is None:
        return []
    source, target = broken.line + max(broken.shift, 0), broken.line + max(-broken.shift, 0)
    return [f"the two sides seem shifted from around line {broken.line:,} on: source {source:,} fits target {target:,}"]


def _refuse_if_nothing_is_kept(name: str, found: _Found) -> None:
    if np.any(found.reasons == Reason.KEPT):
        return
    counts = [
        f"{entry.count:,} × {reason.label} ({REASONS[reason][1]}; first at line {entry.first_line:,})"
        for reason, entry in count_dropped(found.reasons).items()
    ]
    raise DataError(f"no usable pair in {name}: {', '.join(counts) or 'it has none'}")


def _hold_out_count(amount: int | float | None, kept: int) -> int:
    if amount is None:
        count = min(2_000, max(1, kept // 20))
    else:
        count = amount if isinstance(amount, int) else round(amount * kept)
    if not 1 <= count < kept:
        raise DataError(f"cannot hold out {count:,} of {kept:,} pairs: some must be left on both sides")
    return count


def _scramble(hashes: Hashes, seed: int) -> Hashes:
    """Another order of the hashes for every seed (the end of splitmix64)."""
    mixed = hashes + np.uint64(seed * _ODD % 2**64)
    # In place, for there may be many.
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


HOLD_OUT_SIDES: dict[str, Callable[[Checkup], Hashes]] = {
    "source": lambda checkup: checkup.source_hashes,
    "target": lambda checkup: checkup.target_hashes,
}
