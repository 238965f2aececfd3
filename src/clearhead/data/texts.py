"""Tables of texts, each perhaps with its label, in; a verdict on every text and the texts worth keeping out.

What the doctor is for pairs: one reading remembers numbers and not texts, and whoever needs the texts reads again
through `kept_texts`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from clearhead.data import hashes
from clearhead.data.corpus import cache_key
from clearhead.data.gist import gist
from clearhead.data.hashes import Hashes
from clearhead.data.reasons import Reason
from clearhead.data.report import measure
from clearhead.data.tables import Table
from clearhead.errors import DataError
from clearhead.text.script import Gauge, Script

Progress = Callable[[int], None]

_PROGRESS_EVERY = 1_000
_MOST_NAMED = 10

WORDS = {
    Reason.EMPTY: "empty",
    Reason.TOO_LONG: "too long",
    Reason.BAD_ENCODING: "not valid UTF-8",
    Reason.DUPLICATE: "the same as an earlier one",
    Reason.MISSING_COLUMN: "without the wanted column or key",
}
"""What the reasons that can befall a text mean."""


class Texts:
    """The texts of one or several tables, one after the other."""

    def __init__(self, tables: Sequence[Table], *, labelled: bool, one_line: bool) -> None:
        self.tables, self.labelled, self._one_line = tables, labelled, one_line
        self._part = 0

    @property
    def name(self) -> str:
        """What to call them in messages."""
        return " + ".join(str(table.path) for table in self.tables)

    def rows(self) -> Iterator[tuple[int, int, str, str, Reason]]:
        """The table, the line, the text, the label and the verdict so far of each; label and text may be empty."""
        for part, table in enumerate(self.tables):
            self._part = part
            for line, values, reason in table.rows():
                text, label = (*values, "", "")[:2]
                # What is read from the command line is one line too.
                text = " ".join(text.split("\n")) if self._one_line else text
                yield part, line, text.strip(), label.strip(), reason

    def where(self, part: int, line: int) -> str:
        """The place of a text."""
        return self.tables[part].where(line)

    def fingerprint(self) -> str:
        """The same for the same texts."""
        read = (f"{type(table).__name__} {list(table.columns)} {table.digest()}" for table in self.tables)
        return cache_key("texts", str(self._one_line), *read)

    def notes(self) -> list[str]:
        """What the latest full reading found and repaired."""
        return [note for table in self.tables for note in table.notes()]

    def share_read(self) -> float:
        """How much of them the reading under way has come through, from 0 to 1."""
        return (self._part + self.tables[self._part].share_read) / len(self.tables)


@dataclass(frozen=True, eq=False)
class Survey:
    """What one reading found; every array has one entry per text, in order."""

    texts: Texts
    reasons: NDArray[np.uint8]
    """A `Reason` for each text; 0 means kept."""
    hashes: Hashes
    """Of each text."""
    gists: Hashes
    """Of what near duplicates of each text share."""
    labels: NDArray[np.int64]
    """The place of each text's label in `names`."""
    lengths: NDArray[np.int32]
    """In characters."""
    parts: NDArray[np.int32]
    """The table each is in."""
    lines: NDArray[np.int64]
    names: tuple[str, ...]
    """All labels that occur among kept texts, sorted."""
    script: Script
    """How they are written."""
    notes: tuple[str, ...]
    """What was repaired in them."""

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which texts are kept."""
        return self.reasons == Reason.KEPT

    @property
    def num_kept(self) -> int:
        return int(np.count_nonzero(self.kept))

    def where(self, index: int) -> str:
        """The place of a text, for messages."""
        return self.texts.where(int(self.parts[index]), int(self.lines[index]))

    def counts(self, chosen: NDArray[np.bool_] | None = None) -> dict[str, int]:
        """How many texts have each label, of all that are kept or of some."""
        of = np.bincount(self.labels[self.kept if chosen is None else chosen], minlength=len(self.names))
        return dict(zip(self.names, of.tolist(), strict=True))

    @property
    def dropped(self) -> dict[Reason, tuple[int, str]]:
        """For each reason that occurs: how many texts were left out, and the place of the first."""
        found = {reason: np.flatnonzero(self.reasons == reason) for reason in WORDS}
        return {reason: (len(which), self.where(int(which[0]))) for reason, which in found.items() if len(which)}

    def report(self) -> list[str]:
        """What a person should know."""
        lines = [f"{self.texts.name}: {len(self.reasons):,} texts, {self.num_kept:,} kept"]
        for reason, (count, where) in self.dropped.items():
            lines.append(f"dropped {count:,}: {WORDS[reason]}, first in {where}")
        if self.texts.labelled:
            lines.append(f"labels: {listed(self.counts())}")
            if self.torn:
                lines.append(f"{self.torn:,} texts occur with more than one label")
        kept = measure(self.lengths[self.kept])
        return [*lines, f"characters: {kept.sentence}", *self.notes]

    @property
    def torn(self) -> int:
        """How many kept texts occur with more than one label."""
        texts = self.hashes[self.kept]
        both = np.unique(hashes.paired(texts, self.labels[self.kept].astype(np.uint64)))
        return len(both) - len(np.unique(texts))


def survey(texts: Texts, *, max_chars: int, drop_duplicates: bool, progress: Progress | None = None) -> Survey:
    """Read all texts once and judge each; `progress` is told from time to time how many are done."""
    reasons, sums, gists = bytearray(), bytearray(), bytearray()
    labels, lengths, parts, lines = array("q"), array("i"), array("i"), array("q")
    known: dict[str, int] = {}
    gauge = Gauge()
    for part, line, text, label, reason in texts.rows():
        if reason is Reason.KEPT:
            reason = _judged(text, label, texts.labelled, max_chars)
        if reason is Reason.KEPT and not gauge.is_sure:
            gauge.add(text)
        reasons.append(reason)
        parts.append(part)
        lines.append(line)
        lengths.append(len(text))
        sums += blake2b(text.encode(), digest_size=8).digest()
        gists += blake2b(gist(text).encode(), digest_size=8).digest()
        labels.append(known.setdefault(label, len(known)) if reason is Reason.KEPT else -1)
        if progress is not None and len(reasons) % _PROGRESS_EVERY == 0:
            progress(len(reasons))
    found = Survey(
        texts,
        np.frombuffer(reasons, dtype=np.uint8),
        np.frombuffer(sums, dtype="<u8"),
        np.frombuffer(gists, dtype="<u8"),
        _in_order(np.frombuffer(labels, dtype=np.int64), known),
        np.frombuffer(lengths, dtype=np.int32),
        np.frombuffer(parts, dtype=np.int32),
        np.frombuffer(lines, dtype=np.int64),
        tuple(sorted(known)),
        gauge.script,
        tuple(texts.notes()),
    )
    if drop_duplicates:
        keys = hashes.paired(found.hashes, found.labels.astype(np.uint64))
        found.reasons[hashes.repetitions(keys, found.kept)] = Reason.DUPLICATE
    _refuse_if_nothing_is_kept(found)
    return found


def kept_texts(survey: Survey, chosen: NDArray[np.bool_] | None = None) -> Iterator[tuple[int, str]]:
    """Read again: the number, from 0, and the text of all that are kept, or of some of these."""
    wanted = (survey.kept if chosen is None else survey.kept & chosen).tobytes()
    changed = f"{survey.texts.name} has changed since it was checked"
    number = -1
    for number, (_, _, text, _, _) in enumerate(survey.texts.rows()):
        if number >= len(wanted):
            raise DataError(f"{changed}: it had {len(wanted):,} texts then")
        if wanted[number]:
            if not text:
                raise DataError(f"{changed}: {survey.where(number)} is no longer usable")
            yield number, text
    if number + 1 != len(wanted):
        raise DataError(f"{changed}: it had {len(wanted):,} texts then")


def hold_out(
    survey: Survey, amount: int | float | None, seed: int, among: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """Choose kept texts, near duplicates together; see `hashes.hold_out`."""
    eligible = survey.kept if among is None else survey.kept & among
    return hashes.hold_out(survey.gists, eligible, amount, seed, "texts", "texts")


def seen_before(trained: Survey, held: Survey) -> int:
    """How many kept texts of one survey are among those of another."""
    return int(np.count_nonzero(hashes.is_among(held.hashes[held.kept], np.unique(trained.hashes[trained.kept]))))


def listed(counts: dict[str, int]) -> str:
    """Labels with their counts, not more than a line.

    >>> listed({"neg": 1200, "pos": 30})
    'neg 1,200, pos 30'
    """
    shown = [f"{name} {count:,}" for name, count in list(counts.items())[:_MOST_NAMED]]
    rest = len(counts) - len(shown)
    return ", ".join([*shown, *([f"and {rest:,} more"] if rest else [])])


def _judged(text: str, label: str, labelled: bool, max_chars: int) -> Reason:
    if not text or (labelled and not label):
        return Reason.EMPTY
    return Reason.TOO_LONG if len(text) > max_chars else Reason.KEPT


def _in_order(labels: NDArray[np.int64], known: dict[str, int]) -> NDArray[np.int64]:
    """Labels numbered as they came, numbered as they are sorted."""
    places = np.full(len(known) + 1, -1, dtype=np.int64)
    for place, name in enumerate(sorted(known)):
        places[known[name]] = place
    return places[labels]


def _refuse_if_nothing_is_kept(found: Survey) -> None:
    if found.kept.any():
        return
    counts = [f"{count:,} × {WORDS[reason]} (first in {where})" for reason, (count, where) in found.dropped.items()]
    raise DataError(f"no usable text in {found.texts.name}: {', '.join(counts) or 'it has none'}")
