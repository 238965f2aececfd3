"""A model directory in, an exported directory out: written beside, compared with the original, and only then named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.checkpoint import locate
from clearhead.data.naming import kept_settings
from clearhead.engines.directory import ExportNotes, describe_export
from clearhead.engines.opening import open_exported
from clearhead.errors import ParityError, UsageError, choose
from clearhead.export.targets import QUANTIZATIONS, TARGETS, write_model
from clearhead.export.verify import EXACT, QUANTISED, WORDS, Parity, Tolerance, compare
from clearhead.run.card import with_section
from clearhead.run.comparing import TRIALS, Copy, Original, made_up_texts
from clearhead.run.using import load
from clearhead.storage import refuse_existing, write_directory, write_json
from clearhead.text.tokenizer import TokenizerPair
from clearhead.version import VERSION

__all__ = ["Copy", "Original", "export", "export_loaded", "made_up_texts"]

NOT_THE_MODEL = (".json", ".md", ".toml")


def export(
    model: Path,
    to: str,
    out: Path,
    *,
    quantize: str | None = None,
    pairs: Sequence[tuple[Any, str]] | None = None,
    language: str | None = None,
    bleu_drop: float | None = None,
    accuracy_drop: float | None = None,
    reduce: str | None = None,
    most: int | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> Parity:
    """Export a model for another engine; `pairs` of texts and references are what both are tried on.

    A reference is a translation, or the true label of a text, or of the pixels of a picture; for other kinds it is not
    looked at. Past the tolerance nothing is written: `bleu_drop` is how much BLEU may be lost, `accuracy_drop` how many
    points of accuracy. `reduce` = "none" keeps the tokens of a model that was trained to have fewer. `most` is how many
    texts both are tried on at most.
    """
    refuse_existing(out)
    choose(TARGETS, to, "format")
    if quantize is not None:
        choose(dict.fromkeys(QUANTIZATIONS), quantize, "quantisation")
    progress("loading")
    loaded = load(model, "cpu")
    if reduce is not None:
        _reduce(loaded, reduce)
    tolerance = _tolerance(loaded.kind, quantize, {"BLEU": bleu_drop, "accuracy": accuracy_drop})
    config, tokenizers = loaded.model.config, _tokenizers(loaded)
    generation = loaded.generation.model_dump() if loaded.model.generates else None
    trial = TRIALS[config.kind]
    asked = trial.asked(loaded, pairs)
    if most is not None:
        asked = asked.some(most)
    home, weights = locate(model)
    found: list[Parity] = []

    def fill(draft: Path) -> None:
        progress("writing")
        write_model(to, loaded.model, tokenizers, draft, quantize)
        size = sum(path.stat().st_size for path in draft.iterdir() if path.suffix not in NOT_THE_MODEL)
        notes = ExportNotes(
            engine=to,
            kind=config.kind,
            quantize=quantize,
            max_len=config.max_len,
            model=config.model_dump(),
            made_by=f"clearhead {VERSION}",
        )
        describe_export(draft, notes, tokenizers, generation)
        progress("comparing")
        parity = compare(
            trial.speaker(loaded),
            trial.speaker(open_exported(draft, "cpu", sealed=False)),
            asked.texts,
            asked.references,
            sizes=((weights / "model.safetensors").stat().st_size, size),
            engine=to,
            quantize=quantize,
            origin=asked.origin,
            language=language,
            kind=config.kind,
        )
        if problems := parity.problems(tolerance):
            raise ParityError(f"{out} was not written, for it is not the same: {'; '.join(problems)}")
        write_json(draft / "parity.json", parity.as_json())
        (draft / "README.md").write_text(with_section(_text(home / "README.md"), "Export", parity.section()), "utf-8")
        (draft / "training_config.toml").write_text(kept_settings(home, out), "utf-8")
        found.append(parity)

    write_directory(out, fill)
    return found[0]


def export_loaded(loaded: Any, to: str, out: Path, **options: Any) -> Parity:
    """Export a model that was loaded from a directory."""
    if loaded.path is None:
        raise UsageError("a model that was not loaded from a directory cannot be exported: save it first")
    return export(loaded.path, to, out, **options)


def _tolerance(kind: str, quantize: str | None, wished: Mapping[str, float | None]) -> Tolerance:
    """How far apart the two may be; only what decides about a kind of model may be lost more or less of."""
    given = {measure: value for measure, value in wished.items() if value is not None}
    for measure in given:
        if measure != WORDS[kind].decides:
            raise UsageError(f"a {kind} is not judged by {measure}: leave out --max-{measure.lower()}-drop")
    changes: dict[str, Any] = {measure.lower(): value for measure, value in given.items()}
    return (EXACT if quantize is None else QUANTISED)._replace(**changes)


def _tokenizers(loaded: Any) -> TokenizerPair | None:
    """The tokenizers of a loaded model; a language model has one."""
    if (one := getattr(loaded, "tokenizer", None)) is not None:
        return TokenizerPair(one, one)
    return getattr(loaded, "tokenizers", None)


def _reduce(loaded: Any, kind: str) -> None:
    if not hasattr(loaded, "reduce"):
        raise UsageError(f"the tokens of a {loaded.kind} do not become fewer: leave out --reduce")
    loaded.reduce(kind=kind)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
