"""A classifier and labelled texts in, its verdicts on them out, beside those of a linear baseline on the same data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.baseline import Baseline
from clearhead.data.labelled import LabelledConfig, check_known, labelled_texts, open_labelled
from clearhead.data.number_split import Split
from clearhead.data.texts import Survey, Texts, kept_texts, survey
from clearhead.engines.classifying import TextClassifier
from clearhead.errors import ConfigError, UsageError, choose
from clearhead.run import settings
from clearhead.run.settings import ClassifierRun
from clearhead.run.tasks.classifier import examine_labelled
from clearhead.verdicts import Verdicts, judge

SPLITS: dict[str, Split] = {"validation": "validation", "test": "test"}
LONGEST = 10**9

Counted = Callable[[int], None]


class ToJudge(NamedTuple):
    """Texts with their true labels."""

    texts: list[str]
    labels: list[int]
    """Their places among the names."""
    names: list[str]
    """All labels of the model."""
    notes: list[str]
    """What was left out."""


def trained_by(model: Path) -> ClassifierRun | None:
    """The settings that a classifier was trained by, if its directory has them."""
    config = settings.trained_by(model)
    assert config is None or isinstance(config, ClassifierRun)
    return config


def texts_to_judge(
    loaded: TextClassifier, model: Path, files: dict[str, Path], split: str | None, limit: int | None
) -> ToJudge:
    """The labelled texts of a file by its kind, or those that the model's training config names or holds out."""
    if len(files) + (split is not None) != 1:
        raise UsageError("say what to score on: --tsv FILE, --csv FILE, --jsonl FILE, --folder DIR or --split test")
    config = trained_by(model)
    if split is not None:
        return _of_split(loaded, config, choose(SPLITS, split, "split"), limit)
    data = config.data if config is not None else LabelledConfig()
    (kind, path), *_ = files.items()
    found = _surveyed(labelled_texts(path, kind, data.text, data.label))
    return _chosen(loaded, found, found.kept, limit)


def _of_split(loaded: TextClassifier, config: ClassifierRun | None, split: Split, limit: int | None) -> ToJudge:
    texts = open_labelled(config.data, split) if config is not None else None
    if texts is not None:
        found = _surveyed(texts)
        return _chosen(loaded, found, found.kept, limit)
    if config is None or (split == "test" and config.data.hold_out_test is None):
        raise ConfigError(f"the model's training config names no {split} data: use --tsv FILE or the like")
    gathered = examine_labelled(config.data, config.train.seed)
    return _chosen(loaded, gathered.survey, gathered.tested if split == "test" else gathered.held_out, limit)


def _surveyed(texts: Texts) -> Survey:
    """Every text that can be read counts in a score, however often it occurs and however long it is."""
    return survey(texts, max_chars=LONGEST, drop_duplicates=False)


def _chosen(loaded: TextClassifier, found: Survey, chosen: NDArray[np.bool_], limit: int | None) -> ToJudge:
    check_known(found, loaded.labels)
    pairs = list(kept_texts(found, chosen))
    if limit is not None and limit < len(pairs):
        # Evenly spaced: files are often sorted by label.
        pairs = [pairs[place * len(pairs) // limit] for place in range(limit)]
    labels = [loaded.labels.index(found.names[int(found.labels[number])]) for number, _ in pairs]
    lost = int(np.count_nonzero(~found.kept))
    notes = [line for line in found.report() if line.startswith("dropped")] if lost and chosen is found.kept else []
    return ToJudge([text for _, text in pairs], labels, loaded.labels, notes)


class Judged(NamedTuple):
    """How right a system is."""

    verdicts: Verdicts
    answers: list[str]
    right: list[bool]
    long: int = 0
    """How many texts were too long to be read at once."""


def judged(loaded: TextClassifier, given: ToJudge, progress: Counted) -> Judged:
    """Let a classifier label texts, and compare; `progress` hears how many are done."""
    rows, long = [], 0
    for number, found in enumerate(loaded.stream(given.texts), start=1):
        # Another classifier may know other labels, or put them into another order.
        rows.append([found.probabilities.get(label, 0.0) for label in given.names])
        long += found.tokens > loaded.long_texts.room
        progress(number)
    return _compared(np.array(rows), given, long)


def judged_by_baseline(labels: Sequence[str], config: ClassifierRun, given: ToJudge, progress: Counted) -> Judged:
    """What a linear model makes of the same texts that has seen the same training texts."""
    gathered = examine_labelled(config.data, config.train.seed)
    check_known(gathered.survey, labels)
    places = [labels.index(name) for name in gathered.survey.names]
    truth = [places[label] for label in gathered.survey.labels[gathered.trained].tolist()]
    model = Baseline.fit(gathered.training_texts(), truth, len(labels), progress)
    return _compared(model.probabilities(given.texts), given)


def _compared(probs: NDArray[np.floating[Any]], given: ToJudge, long: int = 0) -> Judged:
    verdicts = judge(probs, given.labels, given.names)
    places = probs.argmax(1).tolist()
    right = [place == label for place, label in zip(places, given.labels, strict=True)]
    return Judged(verdicts, [given.names[place] for place in places], right, long)
