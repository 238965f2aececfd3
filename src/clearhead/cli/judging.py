"""A classifier and labelled texts in, how right it is on stdout: what `clearhead score` does for such models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from clearhead.cli import show
from clearhead.cli.flags import ALL_TOKENS, Fewer
from clearhead.errors import ClearheadError, UsageError

if TYPE_CHECKING:
    from clearhead.engines.classifying import TextClassifier
    from clearhead.run.judging import Judged, ToJudge
    from clearhead.verdicts import Verdicts

MOST_SHOWN = 12
"""With more labels than this, no confusion matrix fits onto a screen."""


class Answered(Protocol):
    """What a model made of labelled examples."""

    @property
    def verdicts(self) -> Verdicts: ...
    @property
    def answers(self) -> list[str]: ...


def score_classifier(
    model: Path,
    files: dict[str, Path],
    split: str | None,
    limit: int | None,
    useless: Mapping[str, object],
    *,
    against: Path | None,
    png: Path | None,
    save: Path | None,
    baseline: bool,
    min_accuracy: float | None,
    as_json: bool,
    device: str,
    engine: str | None = None,
    threads: int | None = None,
    fewer: Fewer = ALL_TOKENS,
) -> int:
    """Score a classifier on a file of labelled texts, or on what its training config kept for validation or test."""
    from clearhead.run.engines import load_text_classifier
    from clearhead.run.judging import judged, texts_to_judge
    from clearhead.verdicts import chance_of

    loaded = load_text_classifier(model, engine=engine, device=device, threads=threads)
    fewer.switch_on(loaded)
    for flag, value in useless.items():
        if value is not None:
            raise UsageError(f"a classifier is scored on labelled texts: leave out {flag}")
    with show.waiting("reading the texts"):
        given = texts_to_judge(loaded, model, files, split, limit)
    other = None if against is None else load_text_classifier(against, device=device)
    for note in given.notes:
        show.note(note)
    with show.counting("classifying", len(given.texts)) as done:
        found = judged(loaded, given, done)
    verdicts = found.verdicts
    if found.long:
        room, meaning = loaded.long_texts.room, loaded.long_texts.meaning
        show.note(f"{found.long:,} of {verdicts.count:,} texts have more than {room} tokens: {meaning}")
    _keep(found, save, png)
    beside: dict[str, dict[str, Any]] = {}
    if other is not None:
        with show.counting("classifying with the other", len(given.texts)) as done:
            rival = judged(other, given, done)
        beside["against"] = {**rival.verdicts.as_json(), "p_value": chance_of(found.right, rival.right)}
    if baseline:
        beside |= _baseline(loaded, model, given, found)
    return _tell(verdicts, beside, as_json, min_accuracy, "texts")


def score_pictures(
    model: Path,
    folder: Path | None,
    split: str | None,
    limit: int | None,
    useless: Mapping[str, object],
    *,
    against: Path | None,
    png: Path | None,
    save: Path | None,
    min_accuracy: float | None,
    as_json: bool,
    device: str,
    engine: str | None = None,
    threads: int | None = None,
    fewer: Fewer = ALL_TOKENS,
) -> int:
    """Score a Vision Transformer on a folder of pictures for each class, or on what its training config kept."""
    from clearhead.run.engines import load_picture_classifier
    from clearhead.run.seeing import judged, pictures_to_score
    from clearhead.verdicts import chance_of

    loaded = load_picture_classifier(model, engine=engine, device=device, threads=threads)
    fewer.switch_on(loaded)
    for flag, value in useless.items():
        if value is not None:
            raise UsageError(f"a vit is scored on labelled pictures: leave out {flag}")
    if (folder is None) == (split is None):
        raise UsageError("say what to score on: --folder DIR, with a folder for each class in it, or --split test")
    with show.waiting("reading the pictures"):
        given = pictures_to_score(loaded, model, split, folder, limit)
    other = None if against is None else load_picture_classifier(against, device=device)
    if other is not None and (other.labels, other.form) != (loaded.labels, loaded.form):
        raise UsageError(f"{against} knows other labels or other sizes of pictures: they cannot be compared")
    with show.counting("classifying", len(given)) as done:
        found = judged(loaded, given, done)
    _keep(found, save, png)
    beside: dict[str, dict[str, Any]] = {}
    if other is not None:
        with show.counting("classifying with the other", len(given)) as done:
            rival = judged(other, given, done)
        beside["against"] = {**rival.verdicts.as_json(), "p_value": chance_of(found.right, rival.right)}
    return _tell(found.verdicts, beside, as_json, min_accuracy, "pictures")


def _keep(found: Answered, save: Path | None, png: Path | None) -> None:
    """Write the answers and draw the confusion matrix, where that was asked for."""
    verdicts = found.verdicts
    if save is not None:
        save.write_text("".join(f"{answer}\n" for answer in found.answers), encoding="utf-8", newline="\n")
    if png is not None:
        from clearhead.inspection.pictures import draw_confusion

        headline = f"accuracy {100 * verdicts.accuracy:.2f} % of {verdicts.count:,}"
        draw_confusion(png, verdicts.labels, verdicts.confusion, headline)
        show.note(f"wrote {png}")


def _tell(
    verdicts: Verdicts, beside: Mapping[str, Mapping[str, Any]], as_json: bool, least: float | None, unit: str
) -> int:
    """Say how right a model is; the exit code is that of the gate."""
    if as_json:
        show.data(json.dumps({**verdicts.as_json(), **beside}, ensure_ascii=False))
    else:
        for line in shown(verdicts, beside, unit):
            show.data(line)
    if least is not None and 100 * verdicts.accuracy < least:
        show.fail(f"accuracy {100 * verdicts.accuracy:.2f} % is below {least:g} %")
        return 1
    return 0


def _baseline(loaded: TextClassifier, model: Path, given: ToJudge, found: Judged) -> dict[str, dict[str, Any]]:
    """What the linear baseline reaches, if what the model was trained on can be read."""
    from clearhead.run.judging import judged_by_baseline, trained_by
    from clearhead.verdicts import chance_of

    config = trained_by(model)
    if config is None:
        show.note("no baseline: the model does not say what it was trained on")
        return {}
    try:
        with show.counting("fitting the linear baseline") as done:
            theirs = judged_by_baseline(loaded.labels, config, given, done)
    except ClearheadError as error:
        show.note(f"no baseline: {error}")
        return {}
    return {"baseline": {**theirs.verdicts.as_json(), "p_value": chance_of(found.right, theirs.right)}}


WHO = {"against": "the other", "baseline": "words and pairs of words, naive Bayes and logistic regression"}


def shown(found: Verdicts, beside: Mapping[str, Mapping[str, Any]], unit: str = "texts") -> list[str]:
    """Scores as lines of text."""
    lines = [
        _share("accuracy", found.accuracy, found.accuracy_interval, f"of {found.count:,}"),
        f"{'macro F1':<12} {100 * found.macro_f1:6.2f} %",
        f"{'calibration':<12} {100 * found.calibration_error:6.2f} %  by which confidence and accuracy differ (ECE)",
    ]
    for name, theirs in beside.items():
        difference = 100 * (found.accuracy - theirs["accuracy"])
        lines += [
            _share(name, theirs["accuracy"], theirs["accuracy_interval"], WHO[name]),
            f"{'difference':<12} {difference:+6.2f} points, p = {theirs['p_value']:.4f}",
        ]
    return [*lines, "", *_table(found, unit)]


def _share(name: str, share: float, interval: Sequence[float], rest: str) -> str:
    within = f"95 % interval {100 * interval[0]:.2f} to {100 * interval[1]:.2f}"
    return f"{name:<12} {100 * share:6.2f} %  {within}  {rest}"


def _table(found: Verdicts, unit: str) -> list[str]:
    """A row for each true label: how often it was answered with each label, and how right these answers are."""
    columns = list(found.labels) if len(found.labels) <= MOST_SHOWN else []
    rows = [["true label", *columns, "recall", "precision", "F1", unit]]
    for counts, entry in zip(found.confusion, found.of_labels, strict=True):
        shares = [f"{100 * share:.2f} %" for share in (entry.recall, entry.precision, entry.f1)]
        rows.append([entry.label, *(f"{count:,}" for count in counts[: len(columns)]), *shares, f"{entry.count:,}"])
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
