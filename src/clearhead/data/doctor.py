"""A source of raw pairs comes in; out go a verdict on every pair, a report for people, and the pairs worth keeping.

The doctor reads once and remembers numbers, not texts: a verdict, four 64-bit hashes and two lengths, 42 bytes each, so
that ten million pairs fit into memory. Whoever needs the texts reads the source again through `kept_pairs`. What was
found in many pairs is kept on disk, so that a run that goes on, or the next process of many, need not read them again.
"""

from __future__ import annotations

import contextlib
import itertools
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data import columns, hashes
from clearhead.data.alignment import first_break
from clearhead.data.columns import ColumnWriter, read_columns
from clearhead.data.corpus import cache_key
from clearhead.data.gist import gist
from clearhead.data.hashes import Hashes
from clearhead.data.limits import Limits, judge
from clearhead.data.reasons import REASONS, Reason
from clearhead.data.report import Dropped, Leakage, PartCount, Place, Report, count_dropped, measure
from clearhead.data.sources import PairSource
from clearhead.errors import DataError, MissingInputError, StorageError, choose

Progress = Callable[[int], None]

WORTH_STORING = 100_000
"""Fewer pairs are read again sooner than found on disk."""

_AT_ONCE = 500
_PROGRESS_EVERY = 10_000


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
    source_gists: Hashes
    """A hash of what near duplicates of each source text share."""
    target_gists: Hashes
    """The same for each target text."""
    parts: NDArray[np.uint8]
    """Which of the source's parts each pair belongs to."""
    files: tuple[str, ...] = ()
    """The files of the parts, if the source has several."""
    validation: Checkup | None = None
    """The findings in the validation source, if one was given."""

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which pairs are kept."""
        return self.reasons == Reason.KEPT

    def place(self, number: int) -> Place:
        """The file and line of a pair, by its number in the source."""
        return _place(self.parts, self.files, number)


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
    files = tuple(part.tsv for part in source.parts)
    dropped = count_dropped(found.reasons, partial(_place, found.parts, files))
    _refuse_if_nothing_is_kept(source.name, found, dropped)
    seen = check(validation, limits, progress=progress, cache=cache) if validation is not None else None
    report = Report(
        name=source.name,
        total=len(found.reasons),
        kept=int(np.count_nonzero(found.reasons == Reason.KEPT)),
        dropped=dropped,
        source_lengths=measure(found.source_lengths[found.reasons == Reason.KEPT]),
        target_lengths=measure(found.target_lengths[found.reasons == Reason.KEPT]),
        leakage=_leakage(found, seen) if seen else None,
        notes=(*notes, *_notes_on_alignment(found, files), *(seen.report.notes if seen else ())),
        parts=tuple(_count_part(found, part, file) for part, file in enumerate(files)),
    )
    sums = found.source_hashes, found.target_hashes, found.source_gists, found.target_gists
    return Checkup(report, found.reasons, *sums, found.parts, files, seen)


def kept_pairs(source: PairSource, checkup: Checkup) -> Iterator[tuple[int, str, str]]:
    """Read the source again: line number, source and target of each kept pair, without outer whitespace."""
    reasons = checkup.reasons.tobytes()
    total = len(reasons)
    number = 0
    for number, source_text, target_text, _, _ in source.pairs():
        if number > total:
            break
        if reasons[number - 1] == Reason.KEPT:
            if source_text is None or target_text is None:
                place = checkup.place(number)
                raise DataError(f"{source.name} has changed since it was checked: {place} is no longer usable")
            yield number, source_text.strip(), target_text.strip()
    if number != total:
        raise DataError(f"{source.name} has changed since it was checked: it had {total:,} pairs then")


def hold_out(
    checkup: Checkup,
    amount: int | float | None = None,
    seed: int = 0,
    by: str = "source",
    among: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:
    """Choose kept pairs, or some `among` them (True): at most a count, or a share below 1, or 5 % and at most 2,000.

    Pairs with the same text on the `by` side, but for case, punctuation and spaces, go together, so that what is held
    out stays unseen on that side. The choice depends on the texts and the seed, not on the order of the pairs; with a
    share, each text is chosen by itself, so that more data move none of it.
    """
    groups = choose(HOLD_OUT_SIDES, by, "side to hold out by")(checkup)
    eligible = checkup.kept if among is None else checkup.kept & among
    return hashes.hold_out(groups, eligible, amount, seed, "pairs", f"{by} texts")


def hold_out_test(checkup: Checkup, amount: int | float, by: str = "source") -> NDArray[np.bool_]:
    """Choose kept pairs for the final test (True) by their texts alone, so that no seed ever lets one into training."""
    return hold_out(checkup, amount, hashes.TEST_SEED, by)


def held_out_texts(checkup: Checkup, held_out: NDArray[np.bool_], by: str) -> Callable[[str, str], bool]:
    """Tell of any source and target whether the one on the `by` side was held out, near duplicates included."""
    side = list(HOLD_OUT_SIDES).index(by)
    held = {number.to_bytes(8, "little") for number in HOLD_OUT_SIDES[by](checkup)[held_out].tolist()}
    return lambda *texts: _sum(gist(texts[side])) in held


class _Found(NamedTuple):
    reasons: NDArray[np.uint8]
    source_hashes: Hashes
    target_hashes: Hashes
    source_gists: Hashes
    target_gists: Hashes
    source_lengths: NDArray[np.int32]
    target_lengths: NDArray[np.int32]
    parts: NDArray[np.uint8]


def _recall(source: PairSource, limits: Limits, progress: Progress | None, cache: Path) -> tuple[_Found, list[str]]:
    # By its name too, for notes name files.
    facts = source.name, source.fingerprint(), limits.model_dump_json(), str(columns.FORMAT_VERSION)
    directory = cache / cache_key("found", *facts)
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
    sums = bytearray(), bytearray()
    gists = bytearray(), bytearray()
    lengths = array("i"), array("i")
    parts = bytearray()
    pairs = source.pairs()
    while chunk := list(itertools.islice(pairs, _AT_ONCE)):
        texts = [(pair.source or "").strip() for pair in chunk], [(pair.target or "").strip() for pair in chunk]
        reasons.extend(
            judge(one, other, limits) if pair.reason is Reason.KEPT else pair.reason
            for pair, one, other in zip(chunk, *texts, strict=True)
        )
        for side in (0, 1):
            sums[side].extend(b"".join([_sum(text) for text in texts[side]]))
            gists[side].extend(b"".join([_sum(gist(text)) for text in texts[side]]))
            lengths[side].extend(map(len, texts[side]))
        parts.extend([pair.part for pair in chunk])
        if progress and len(reasons) % _PROGRESS_EVERY == 0:
            progress(len(reasons))
    if progress:
        progress(len(reasons))
    found = _Found(
        np.frombuffer(reasons, dtype=np.uint8),
        np.frombuffer(sums[0], dtype="<u8"),
        np.frombuffer(sums[1], dtype="<u8"),
        np.frombuffer(gists[0], dtype="<u8"),
        np.frombuffer(gists[1], dtype="<u8"),
        np.frombuffer(lengths[0], dtype=np.int32),
        np.frombuffer(lengths[1], dtype=np.int32),
        np.frombuffer(parts, dtype=np.uint8),
    )
    if limits.drop_duplicates:
        again = hashes.repetitions(
            hashes.paired(found.source_hashes, found.target_hashes), found.reasons == Reason.KEPT
        )
        found.reasons[again] = Reason.DUPLICATE
    return found, source.notes()


def _sum(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=8).digest()


def _leakage(found: _Found, seen: Checkup) -> Leakage:
    is_trained = found.reasons == Reason.KEPT

    def shared(trained: Hashes, held: Hashes) -> int:
        both = trained[is_trained & hashes.is_among(trained, np.unique(held))]
        return int(np.count_nonzero(hashes.is_among(held, np.unique(both))))

    held_source, held_target = seen.source_hashes[seen.kept], seen.target_hashes[seen.kept]
    pairs = hashes.paired(found.source_hashes, found.target_hashes)
    return Leakage(
        validation_name=seen.report.name,
        validation_pairs=seen.report.kept,
        same_source=shared(found.source_hashes, held_source),
        same_target=shared(found.target_hashes, held_target),
        same_pair=shared(pairs, hashes.paired(held_source, held_target)),
    )


def _place(parts: NDArray[np.uint8], files: tuple[str, ...], number: int) -> Place:
    if not files:
        return Place(number)
    part = int(parts[number - 1])
    return Place(number - int(np.searchsorted(parts, part)), files[part])


def _count_part(found: _Found, part: int, file: str) -> PartCount:
    reasons = found.reasons[found.parts == part]
    return PartCount(file, len(reasons), int(np.count_nonzero(reasons == Reason.KEPT)))


def _notes_on_alignment(found: _Found, files: tuple[str, ...]) -> list[str]:
    notes = []
    for part, file in enumerate(files or (None,)):
        first, stop = np.searchsorted(found.parts, (part, part + 1))
        broken = first_break(found.source_lengths[first:stop], found.target_lengths[first:stop], (-2, -1, 1, 2))
        if broken is not None:
            source, target = broken.line + max(broken.shift, 0), broken.line + max(-broken.shift, 0)
            where = Place(broken.line, file)
            notes.append(f"the two sides seem shifted from around {where} on: source {source:,} fits target {target:,}")
    return notes


def _refuse_if_nothing_is_kept(name: str, found: _Found, dropped: Mapping[Reason, Dropped]) -> None:
    if np.any(found.reasons == Reason.KEPT):
        return
    counts = [
        f"{entry.count:,} × {reason.label} ({REASONS[reason][1]}; first at {entry.place})"
        for reason, entry in dropped.items()
    ]
    raise DataError(f"no usable pair in {name}: {', '.join(counts) or 'it has none'}")


HOLD_OUT_SIDES: dict[str, Callable[[Checkup], Hashes]] = {
    "source": lambda checkup: checkup.source_gists,
    "target": lambda checkup: checkup.target_gists,
}
