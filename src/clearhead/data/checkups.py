"""Texts or pictures in, what a person should know of them before training out: counts, doubles, lengths, words.

What the doctor is for pairs; nothing is left out here that training would take, and nothing is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clearhead.data import hashes
from clearhead.data.labelled import check_known, check_labels, labelled_texts
from clearhead.data.passages import RunningText
from clearhead.data.picture_files import Glance, PictureSet
from clearhead.data.report import Lengths, measure
from clearhead.data.tables import Column, Lines
from clearhead.data.texts import WORDS, Survey, Texts, kept_texts, seen_before, survey
from clearhead.data.vocabulary import Coverage, WordCount
from clearhead.errors import DataError

Progress = Callable[[int, float], None]
"""How many are done, and what share of all that is, from 0 to 1."""

SAMPLE = 100_000
"""Words are counted in at most so many texts, evenly spaced."""
MOST_NAMED = 10


@dataclass(frozen=True)
class Dropped:
    """How many texts or pictures training could not use for one reason, and where the first is."""

    count: int
    place: str


@dataclass(frozen=True)
class Findings:
    """What was found in one file or folder."""

    name: str
    unit: str
    """What was counted: lines, texts, pictures."""
    total: int
    kept: int
    dropped: dict[str, Dropped]
    labels: dict[str, int]
    """How many of the kept have each label, where there are labels."""
    lengths: Lengths | None
    """In characters, of texts."""
    coverage: Coverage | None
    seen_before: int | None
    """How many of these, to validate on, are also trained on."""
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The same as plain dictionaries, lists and numbers."""
        return asdict(self)


def check_text(path: Path, validation: Path | None = None, progress: Progress | None = None) -> list[Findings]:
    """What is in a text, line by line, and as it runs on."""
    trained = _surveyed(_lines(path), progress, drop_duplicates=True)
    held = _surveyed(_lines(validation), progress, drop_duplicates=False) if validation is not None else None
    return _both(trained, held, "lines", lambda found: _running(found.texts.tables[0].path))


def check_labelled(
    path: Path,
    validation: Path | None = None,
    columns: tuple[Column, Column] = ("text", "label"),
    progress: Progress | None = None,
) -> list[Findings]:
    """What is in labelled texts: a TSV, CSV or JSON lines file, or a folder with one for each label."""
    trained = _surveyed(labelled_texts(path, None, *columns), progress, drop_duplicates=True)
    held = None
    if validation is not None:
        held = _surveyed(labelled_texts(validation, None, *columns), progress, drop_duplicates=False)

    def complaints(found: Survey) -> list[str]:
        said = [f"{found.torn:,} texts occur with more than one label"] if found.torn else []
        try:
            if found is trained:
                check_labels(found)
            else:
                check_known(found, trained.names)
        except DataError as error:
            said.append(str(error))
        return said

    return _both(trained, held, "texts", complaints)


def check_pictures(
    pictures: PictureSet, validation: PictureSet | None = None, progress: Progress | None = None
) -> list[Findings]:
    """What is in labelled pictures: which cannot be read, which are the same, how large they are."""
    trained = _glanced(pictures, progress)
    found = [_picture_findings(pictures, trained, None)]
    if validation is not None:
        found.append(_picture_findings(validation, _glanced(validation, progress), {one.digest for one in trained}))
    return found


def _lines(path: Path) -> Texts:
    return Texts([Lines(path, ("text",))], labelled=False, one_line=True)


def _surveyed(texts: Texts, progress: Progress | None, *, drop_duplicates: bool) -> Survey:
    def tell(done: int) -> None:
        if progress is not None:
            progress(done, texts.share_read())

    return survey(texts, max_chars=np.iinfo(np.int32).max, drop_duplicates=drop_duplicates, progress=tell)


def _both(trained: Survey, held: Survey | None, unit: str, more: Callable[[Survey], Sequence[str]]) -> list[Findings]:
    words = _counted(trained)
    others = _counted(held) if held is not None else None
    found = [_text_findings(trained, unit, words.coverage(others), None, more(trained))]
    if held is not None and others is not None:
        found.append(_text_findings(held, unit, others.coverage(), seen_before(trained, held), more(held)))
    return found


def _counted(found: Survey) -> WordCount:
    words, every = WordCount(), -(-found.num_kept // SAMPLE)
    for place, (_, text) in enumerate(kept_texts(found)):
        if place % every == 0:
            words.add(text)
    return words


def _text_findings(found: Survey, unit: str, coverage: Coverage, seen: int | None, more: Sequence[str]) -> Findings:
    return Findings(
        name=found.texts.name,
        unit=unit,
        total=len(found.reasons),
        kept=found.num_kept,
        dropped={WORDS[reason]: Dropped(*entry) for reason, entry in found.dropped.items()},
        labels=found.counts() if found.texts.labelled else {},
        lengths=measure(found.lengths[found.kept]),
        coverage=coverage,
        seen_before=seen,
        notes=(*found.texts.notes(), *more),
    )


def _running(path: Path) -> list[str]:
    """What a text is for a model that reads it from end to end: all of it, but for what is no text."""
    text = RunningText(path)
    characters = sum(len(passage) for passage in text.passages())
    left_out = [note for note in text.notes() if note not in text.file.notes()]
    return [f"{path}: {characters:,} characters to read from end to end, as a gpt does", *left_out]


def _glanced(pictures: PictureSet, progress: Progress | None) -> list[Glance]:
    found = []
    for glance in pictures.glances():
        found.append(glance)
        if progress is not None:
            progress(len(found), len(found) / len(pictures))
    return found


def _picture_findings(pictures: PictureSet, found: list[Glance], trained: set[int] | None) -> Findings:
    good, bad = [one for one in found if not one.complaint], [one for one in found if one.complaint]
    sums = np.array([one.digest for one in good], dtype=np.uint64)
    again = hashes.repetitions(sums, np.ones(len(sums), dtype=np.bool_))
    dropped = {}
    if bad:
        dropped["cannot be read"] = Dropped(len(bad), bad[0].where)
    sizes = Counter(one.form for one in good)
    shapes = ", ".join(f"{form} ({count:,})" for form, count in sizes.most_common(MOST_NAMED))
    notes = [f"{len(sizes):,} sizes: {shapes}" if len(sizes) > 1 else f"all {shapes}"] if sizes else []
    if len(again):
        notes.append(
            f"{len(again):,} are, pixel by pixel, the same as an earlier one, first {good[int(again[0])].where}"
        )
    labels_of: dict[int, set[int]] = {}
    for one in good:
        labels_of.setdefault(one.digest, set()).add(one.label)
    torn = sum(len(labels) > 1 for labels in labels_of.values())
    if torn:
        notes.append(f"{torn:,} pictures occur with more than one label")
    notes += [one.complaint for one in bad[:MOST_NAMED]]
    counts = Counter(one.label for one in good)
    return Findings(
        name=pictures.name,
        unit="pictures",
        total=len(found),
        kept=len(good),
        dropped=dropped,
        labels={name: counts[number] for number, name in enumerate(pictures.labels)},
        lengths=None,
        coverage=None,
        seen_before=None if trained is None else sum(one.digest in trained for one in good),
        notes=(*notes, *pictures.remarks()),
    )
