"""`clearhead score`: a model and a test set, or hypotheses and references, in; scores with their uncertainty out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from clearhead.cli import show
from clearhead.errors import DataError, UsageError

if TYPE_CHECKING:
    from clearhead.evaluate import Scores


def score(
    *,
    model: Annotated[Path | None, Parameter(name=["--model", "-m"])] = None,
    source: Path | None = None,
    target: Path | None = None,
    tsv: Path | None = None,
    hypotheses: Path | None = None,
    split: str | None = None,
    language: str | None = None,
    beam: int | None = None,
    limit: int | None = None,
    save: Path | None = None,
    min_bleu: float | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
    device: str = "auto",
    threads: int | None = None,
) -> int:
    """Score translations: BLEU and chrF with signature and confidence interval, and exact match.

    clearhead score --model runs/de-en --source test.de --target test.en

    clearhead score --hypotheses output.txt --target test.en

    Parameters
    ----------
    model
        A model or run directory.
    source
        The test set's source side.
    target
        The test set's reference translations.
    tsv
        Instead of two files: one with source and reference in its first two columns.
    hypotheses
        Translations made earlier, one a line, to be scored as they are.
    split
        Score on the model's own `validation` or `test` split, as its training config names it.
    language
        Target language; zh is tokenised by character. Taken from the model where it knows.
    beam
        Hypotheses kept side by side; 1 is greedy.
    limit
        Score only the first so many pairs.
    save
        Write the translations to this file.
    min_bleu
        Exit with 1 if BLEU is lower: a gate for scripts.
    as_json
        As one JSON object.
    device
        Where to compute: auto, cpu, cuda.
    threads
        CPU threads to use.
    """
    if (model is None) == (hypotheses is None):
        raise UsageError("score either a --model or a file of --hypotheses")
    from clearhead.evaluate import score as score_texts

    if hypotheses is not None:
        if target is None:
            raise UsageError("--hypotheses needs the references: --target FILE")
        found, references = _lines(hypotheses, limit), _lines(target, limit)
    else:
        assert model is not None
        from clearhead.run.scoring import pairs_to_score, translated

        if threads is not None:
            import torch

            torch.set_num_threads(threads)
        pairs, known_language = pairs_to_score(model, source, target, tsv, split, limit)
        language = language or known_language
        references = [reference for _, reference in pairs]
        with show.counting("translating", len(pairs)) as done:
            found = translated(model, [text for text, _ in pairs], beam=beam, device=device, progress=done)
    if save is not None:
        save.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
    scores = score_texts(found, references, target_language=language)
    _print(scores, as_json=as_json)
    if min_bleu is not None and scores.bleu < min_bleu:
        show.fail(f"BLEU {scores.bleu:.2f} is below {min_bleu}")
        return 1
    return 0


def _print(scores: Scores, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(scores.as_json(), ensure_ascii=False) + "\n")
        return
    for name, value, interval, signature in (
        ("BLEU", scores.bleu, scores.bleu_interval, scores.bleu_signature),
        ("chrF", scores.chrf, scores.chrf_interval, scores.chrf_signature),
    ):
        within = f"  95 % interval {interval[0]:.2f} to {interval[1]:.2f}" if interval else ""
        sys.stdout.write(f"{name:<12} {value:6.2f}{within}  {signature}\n")
    sys.stdout.write(f"{'exact match':<12} {100 * scores.exact_match:6.2f} % of {scores.count:,}\n")


def _lines(path: Path, limit: int | None) -> list[str]:
    from itertools import islice

    from clearhead.data.lines import TextFile

    lines = []
    for number, line in enumerate(islice(TextFile(path).lines(), limit), start=1):
        if not isinstance(line, str):
            raise DataError(f"{path} line {number:,}: {line.name.lower().replace('_', ' ')}")
        lines.append(line)
    return lines
