"""`clearhead export`: a model in, the same model for another engine out, proven to say the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.cli import show
from clearhead.cli.flags import Count, Json
from clearhead.errors import UsageError

if TYPE_CHECKING:
    from clearhead.export.verify import Parity


def export(
    model: Path,
    /,
    *,
    to: str,
    out: Path,
    quantize: str | None = None,
    source: Path | None = None,
    target: Path | None = None,
    tsv: Path | None = None,
    split: str | None = None,
    limit: Count = None,
    max_bleu_drop: float | None = None,
    as_json: Json = False,
) -> None:
    """Write a model for another engine, after comparing the two side by side.

    clearhead export runs/de-en --to ctranslate2 --quantize int8 --split validation --out models/de-en-int8

    clearhead export runs/de-en --to onnx --out models/de-en-onnx

    Both translate the same texts. If the copy does not say the same, nothing is written. Exported models need no torch:
    clearhead translate and score take them as they take any other.

    Parameters
    ----------
    model
        A model or run directory.
    to
        For which engine: ctranslate2 or onnx.
    out
        The directory to write.
    quantize
        Make it smaller and faster: int8.
    source
        Test data to compare on, its source side; without any, random tokens are translated.
    target
        Its reference translations.
    tsv
        Instead of two files: one with source and reference in its first two columns.
    split
        Compare on the validation or test data that the model's training config names or holds out.
    limit
        Compare on the first so many pairs only.
    max_bleu_drop
        How much BLEU may be lost; 0.5 unless given.
    """
    given = [split, tsv, source or target]
    if given.count(None) < 2:
        raise UsageError("one test set at a time: --source FILE --target FILE, --tsv FILE, or --split validation")
    if given.count(None) == 3 and (limit is not None or max_bleu_drop is not None):
        raise UsageError("--limit and --max-bleu-drop are about test data: add --source FILE --target FILE, or --split")
    with show.waiting("loading"):
        from clearhead.run.exporting import export as export_model
        from clearhead.run.scoring import pairs_to_score

        pairs, language = None, None
        if given.count(None) < 3:
            found, language = pairs_to_score(model, source, target, tsv, split, limit)
            pairs = [(pair.source, pair.reference) for pair in found]
    with show.doing("exporting") as tell:
        parity = export_model(
            model,
            to,
            out,
            quantize=quantize,
            pairs=pairs,
            language=language,
            bleu_drop=max_bleu_drop,
            progress=tell,
        )
    if as_json:
        sys.stdout.write(json.dumps(parity.as_json()) + "\n")
    _show(parity, out)


def _show(parity: Parity, out: Path) -> None:
    show.table(f"on {parity.texts:,} texts ({parity.origin})", ("", "original", parity.engine), parity.table())
    show.note(f'the model is in {out}; try it: {show.program()} translate --model {out} "…"')
