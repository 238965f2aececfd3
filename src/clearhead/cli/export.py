"""`clearhead export`: a model in, the same model for another engine out, proven to say the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.cli import show
from clearhead.cli.flags import Count, Json, Least, Reduce
from clearhead.errors import UsageError

if TYPE_CHECKING:
    from clearhead.export.verify import Parity

USES = {
    "translator": ("translate", '"…"'),
    "gpt": ("generate", '"…"'),
    "classifier": ("classify", '"…"'),
    "bert": ("fill", '"… [MASK] …"'),
    "vit": ("classify", "FILE"),
}
"""How each kind of model is tried."""


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
    csv: Path | None = None,
    jsonl: Path | None = None,
    folder: Path | None = None,
    text: Path | None = None,
    split: str | None = None,
    limit: Count = None,
    max_bleu_drop: Least = None,
    max_accuracy_drop: Least = None,
    reduce: Reduce = None,
    as_json: Json = False,
) -> None:
    """Write a model for another engine, after comparing the two side by side.

    clearhead export runs/de-en --to ctranslate2 --quantize int8 --split validation --out models/de-en-int8

    clearhead export runs/shakespeare --to onnx --out models/shakespeare

    clearhead export runs/imdb --to onnx --split test --limit 1000 --out models/imdb

    Both are asked the same. If the copy does not say the same, nothing is written. Exported models need no torch:
    clearhead translate, generate, classify and fill take them as they take any other.

    Parameters
    ----------
    model
        A model or run directory.
    to
        For which engine: onnx, or for translators and language models ctranslate2.
    out
        The directory to write.
    quantize
        Make it smaller and faster: int8.
    source
        Test data to compare on, its source side; without any, random tokens are translated.
    target
        Its reference translations.
    tsv
        Instead of two files: one of both, in the columns of the training data or the first two; or labelled texts.
    csv
        For a classifier: labelled texts between commas, columns named in the first line.
    jsonl
        For a classifier: labelled texts, one JSON object a line.
    folder
        For a classifier: labelled texts as files, or for a vit pictures, in a folder for each label.
    text
        For a language model or a BERT: texts to compare on, one a line; plain or .gz.
    split
        Compare on the validation or test data that the model's training config names or holds out.
    limit
        Compare on so many only.
    max_bleu_drop
        How much BLEU may be lost; 0.5 unless given.
    max_accuracy_drop
        How many points of accuracy, of a hundred, may be lost; 0.5 unless given.
    reduce
        With none, a model that was trained to drop or merge tokens is written without that.
    """
    wished: dict[str, Any] = {
        "source": source, "target": target, "tsv": tsv, "csv": csv, "jsonl": jsonl, "folder": folder, "text": text,
        "split": split,
    }  # fmt: skip
    given = {name: value for name, value in wished.items() if value is not None}
    if len(given) > 1 and set(given) != {"source", "target"}:
        raise UsageError("one test set at a time: --source FILE --target FILE, --tsv FILE, or --split validation")
    if not given and any(one is not None for one in (limit, max_bleu_drop, max_accuracy_drop)):
        raise UsageError(
            "--limit, --max-bleu-drop and --max-accuracy-drop are about test data: add --split validation, for example"
        )
    with show.waiting("loading"):
        from clearhead.run.exporting import export as export_model
        from clearhead.run.trial_data import trial_data

        pairs, language = trial_data(model, given, limit) if given else (None, None)
    with show.doing("exporting") as tell:
        parity = export_model(
            model,
            to,
            out,
            quantize=quantize,
            pairs=pairs,
            language=language,
            bleu_drop=max_bleu_drop,
            accuracy_drop=max_accuracy_drop,
            reduce=reduce,
            progress=tell,
        )
    if as_json:
        sys.stdout.write(json.dumps(parity.as_json()) + "\n")
    _show(parity, out)


def _show(parity: Parity, out: Path) -> None:
    what = "pictures" if parity.kind == "vit" else "texts"
    show.table(f"on {parity.texts:,} {what} ({parity.origin})", ("", "original", parity.engine), parity.table())
    verb, text = USES[parity.kind]
    show.note(f"the model is in {out}; try it: {show.program()} {verb} --model {out} {text}")
