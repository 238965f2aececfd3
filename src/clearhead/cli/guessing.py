"""A BERT and documents in, how many hidden words it names on stdout: what `clearhead score` does for such models."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.cli import show
from clearhead.cli.flags import ALL_TOKENS, Fewer, use_threads
from clearhead.errors import UsageError

if TYPE_CHECKING:
    from clearhead.run.guessing import Guesses


def score_guesses(
    model: Path,
    text: Path | None,
    split: str | None,
    limit: int | None,
    useless: Mapping[str, object],
    *,
    min_accuracy: float | None,
    as_json: bool,
    device: str,
    threads: int | None = None,
    fewer: Fewer = ALL_TOKENS,
) -> int:
    """Score a BERT on a file of documents, or on those that its training config kept for validation."""
    for flag, value in useless.items():
        if value is not None:
            raise UsageError(f"a BERT is scored on documents, in torch: leave out {flag}")
    if (text is None) == (split is None):
        raise UsageError("say what to score on: --text FILE, with a document a line, or --split validation")
    use_threads(threads)
    from clearhead.run.filling import LoadedBert
    from clearhead.run.guessing import documents_to_guess, guessed
    from clearhead.run.trying import in_batches
    from clearhead.run.using import load_as

    loaded = load_as(LoadedBert, model, device)
    fewer.switch_on(loaded)
    with show.waiting("reading the documents"):
        examples = documents_to_guess(loaded, model, text, split)
    with show.counting("guessing") as done:
        found = guessed(loaded.model, in_batches(examples, limit), done)
    sys.stdout.write(json.dumps(found.as_json()) + "\n" if as_json else _shown(found))
    if min_accuracy is not None and 100 * found.accuracy < min_accuracy:
        show.fail(f"accuracy {100 * found.accuracy:.2f} % is below {min_accuracy:g} %")
        return 1
    return 0


def _shown(found: Guesses) -> str:
    tree = found.as_json()
    lines = [
        _share("accuracy", tree, "hidden words"),
        f"{'perplexity':<14} {found.perplexity:8.2f}    loss {found.loss:.4f}",
    ]
    if "next_sentence" in tree:
        lines.append(_share("next sentence", tree["next_sentence"], "texts"))
    return "".join(f"{line}\n" for line in lines)


def _share(name: str, found: Mapping[str, Any], unit: str) -> str:
    low, high = (100 * end for end in found["accuracy_interval"])
    return (
        f"{name:<14} {100 * found['accuracy']:8.2f} %  95 % interval {low:.2f} to {high:.2f}  "
        f"of {found['count']:,} {unit}"
    )
