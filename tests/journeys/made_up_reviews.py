"""Opinions made of a few words, with labels that can be learnt from them: data for journeys of models that read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

WORDS = {"good": ("great", "lovely", "fine", "fresh"), "bad": ("awful", "dull", "weak", "stale")}
THINGS = ("film", "plot", "cast", "music", "ending", "script")
LABELS = ("bad", "good", "so-so")


def reviews(count: int, seed: int, labels: Sequence[str] = LABELS) -> list[tuple[str, str]]:
    """Text and label of so many opinions, all different."""
    draw = np.random.default_rng(seed)
    found: dict[str, str] = {}
    while len(found) < count:
        label = labels[len(found) % len(labels)]
        moods = (["good", "bad"] if label == "so-so" else [label, label])[:: 1 if draw.random() < 0.5 else -1]
        parts = [f"The {draw.choice(THINGS)} was {draw.choice(WORDS[mood])}" for mood in moods]
        found[f"{', and '.join(parts).lower()}. Number {draw.integers(10_000)}."] = label
    return list(found.items())


def as_tsv(path: Path, rows: Sequence[tuple[str, str]]) -> Path:
    text = "".join(f"{label}\t{number}\t{text}\n" for number, (text, label) in enumerate(rows))
    path.write_text("label\tid\ttext\n" + text, encoding="utf-8", newline="\n")
    return path


def as_csv(path: Path, rows: Sequence[tuple[str, str]]) -> Path:
    found = io.StringIO()
    csv.writer(found, lineterminator="\n").writerows([("text", "label"), *rows])
    path.write_text(found.getvalue(), encoding="utf-8", newline="\n")
    return path


def as_jsonl(path: Path, rows: Sequence[tuple[str, str]]) -> Path:
    text = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def as_folder(path: Path, rows: Sequence[tuple[str, str]]) -> Path:
    for number, (text, label) in enumerate(rows):
        (path / label).mkdir(parents=True, exist_ok=True)
        (path / label / f"{number}.txt").write_text(text, encoding="utf-8", newline="\n")
    return path


FORMS = {"tsv": as_tsv, "csv": as_csv, "jsonl": as_jsonl, "folder": as_folder}
