"""A Hugging Face directory in, a model directory of ours out, compared with the original where that can be run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from clearhead.checkpoint import save_model
from clearhead.errors import ParityError
from clearhead.export.huggingface import find_family, read_family
from clearhead.run.tasks import TASKS
from clearhead.storage import refuse_existing
from clearhead.version import VERSION

MOST_APART = 1e-3
"""The largest difference of a score that is taken for rounding."""
SHOWN = 4
"""How many names of tensors that were left out are told."""


@dataclass(frozen=True)
class Report:
    """What was imported."""

    kind: str
    family: str
    parameters: int
    difference: float | None
    """The largest difference of a score beside `transformers`; None where that is not installed."""
    notes: tuple[str, ...]
    """What a person should know: heads that are missing, tensors that were left out."""
    verb: str
    """The command it is for."""


def import_directory(path: Path, out: Path, *, check: bool = True) -> Report:
    """Read somebody else's model and write it as one of ours; one that says something else is not written."""
    refuse_existing(out)
    family, downloaded = find_family(path)
    imported = read_family(family, downloaded)
    difference = family.differences(path, imported) if check and find_spec("transformers") else None
    if difference is not None and not difference <= MOST_APART:
        raise ParityError(f"{out} was not written, for it is not the same: its scores differ by up to {difference:.2g}")
    kind = imported.model.config.kind
    parameters = sum(weights.numel() for weights in imported.model.parameters())
    report = Report(
        kind,
        str(downloaded.config["model_type"]),
        parameters,
        difference,
        (*imported.notes, *_left_out(kind, downloaded.left_out)),
        imported.verb or TASKS[kind].verb,
    )
    save_model(
        out,
        imported.model,
        imported.tokenizers,
        generation=imported.generation,
        card=_card(path, report),
        training_config="",
        replace=False,
    )
    return report


def _left_out(kind: str, names: Sequence[str]) -> list[str]:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return [f"left out, for our {kind} has no place for it: {', '.join(names[:SHOWN])}{more}"] if names else []


def _card(path: Path, report: Report) -> str:
    original = path / "README.md"
    text = original.read_text(encoding="utf-8", errors="replace") if original.is_file() else ""
    body = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL).strip()
    compared = "not compared" if report.difference is None else f"at most {report.difference:.2g}"
    return "\n".join(
        [
            "---",
            "library_name: clearhead",
            "---",
            f"# {report.kind.capitalize()}, imported",
            "",
            "| | |",
            "|---|---|",
            f"| original | {path.name}, a {report.family} model |",
            "| licence | that of the original |",
            f"| parameters | {report.parameters:,} |",
            f"| difference of a score from the original in transformers | {compared} |",
            f"| made by | clearhead {VERSION}: `clearhead import` |",
            "",
            f"Use it: `clearhead {report.verb} {'.' if report.verb == 'inspect' else '--model .'}`",
            *(["", *(f"- {note}" for note in report.notes)] if report.notes else []),
            *(["", "## The original's card", "", body] if body else []),
            "",
        ]
    )
