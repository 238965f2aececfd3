"""A language model and a text in, its perplexity on stdout: what `clearhead score` does for such models."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.cli import show
from clearhead.errors import UsageError, choose

if TYPE_CHECKING:
    from clearhead.run.likelihood import Estimate, Likelihood


def score_text(
    model: Path,
    text: Path | None,
    split: str | None,
    useless: Mapping[str, object],
    *,
    like: Sequence[str] = (),
    as_json: bool,
    device: str,
    engine: str | None = None,
    threads: int | None = None,
) -> int:
    """Score a language model on a text file, or on what its training config kept for validation or test."""
    from clearhead.run.engines import load_writer
    from clearhead.run.likelihood import ESTIMATES, estimate_like, kept_text, likelihood, tokens_of
    from clearhead.run.texts import examine_text

    for protocol in like:
        choose(ESTIMATES, protocol, "protocol of language models")
    loaded = load_writer(model, engine=engine, device=device, threads=threads)
    for flag, value in useless.items():
        if value is not None:
            raise UsageError(f"a language model is scored on a text: leave out {flag}")
    if (text is None) == (split is None):
        raise UsageError("say what to score on: --text FILE, or --split validation")
    with show.waiting("reading the text") as tell:
        part = examine_text(text, tell) if text is not None else kept_text(model, str(split))
    with show.counting("foretelling", None) as done:
        tokens = tokens_of(loaded, part)
        found = likelihood(loaded, tokens, done)
        estimates = [estimate_like(protocol, loaded, tokens) for protocol in like]
    if found.unknown:
        show.note(f"{found.unknown:,} of {found.tokens:,} tokens are unknown to this model: they count as <unk>")
    tree = {**found.as_json(), **({"like": [asdict(one) for one in estimates]} if estimates else {})}
    sys.stdout.write(json.dumps(tree) + "\n" if as_json else _shown(found, estimates))
    return 0


def _shown(found: Likelihood, estimates: Sequence[Estimate]) -> str:
    tree = found.as_json()
    within = "" if found.error is None else f" ± {found.error:.4f}"
    rows = (
        ("token", tree["perplexity"], f"loss {found.loss:.4f}{within}, {found.tokens:,} tokens"),
        ("character", tree["perplexity_per_character"], f"{found.bits_per_character:.4f} bits, {found.characters:,}"),
        ("byte", tree["perplexity_per_byte"], f"{found.bits_per_byte:.4f} bits, {found.bytes:,}"),
    )
    lines = [f"perplexity per {unit:<10} {value:10.4f}   ({more})\n" for unit, value, more in rows]
    for one in estimates:
        drawn = f"{one.windows:,} windows of {one.length:,} tokens that begin anywhere"
        lines.append(f"loss like {one.protocol:<15} {one.loss:10.4f}   (± {one.error:.4f}, {drawn})\n")
    return "".join(lines)
