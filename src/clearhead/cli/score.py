"""`clearhead score`: a model and a test set, or hypotheses and references, in; scores with their uncertainty out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from clearhead.cli import show
from clearhead.cli.flags import (
    ALL_TOKENS,
    Count,
    Device,
    Engine,
    Fewer,
    Json,
    Least,
    Model,
    Threads,
    Workers,
    refuse_ending,
)
from clearhead.cli.guessing import score_guesses
from clearhead.cli.judging import score_classifier, score_pictures
from clearhead.cli.perplexity import score_text
from clearhead.cli.reading import read_lines
from clearhead.errors import DataError, MissingInputError, UsageError

if TYPE_CHECKING:
    from clearhead.evaluate import Comparison, Scores
    from clearhead.protocols import ProtocolScore
    from clearhead.run.scoring import ToScore


def score(
    *,
    model: Model = None,
    source: Path | None = None,
    target: Path | None = None,
    tsv: Path | None = None,
    csv: Path | None = None,
    jsonl: Path | None = None,
    folder: Path | None = None,
    text: Path | None = None,
    hypotheses: Path | None = None,
    split: str | None = None,
    part: str | None = None,
    against: Path | None = None,
    language: str | None = None,
    like: Annotated[list[str] | None, Parameter(negative=())] = None,
    beam: Count = None,
    limit: Count = None,
    save: Path | None = None,
    min_bleu: Least = None,
    png: Path | None = None,
    baseline: Annotated[bool, Parameter(negative="--no-baseline")] = True,
    min_accuracy: Least = None,
    fewer: Fewer = ALL_TOKENS,
    as_json: Json = False,
    engine: Engine = None,
    device: Device = "auto",
    threads: Threads = None,
    workers: Workers = None,
) -> int:
    """Score translations: BLEU and chrF with signature and confidence interval, and exact match.

    A classifier is scored on labelled texts: accuracy with its interval, F1, confusion, calibration, and beside it what
    a linear model over words and pairs of words reaches that has seen the same.

    A Vision Transformer is scored on labelled pictures in the same way, but for the linear model.

    A language model is scored on a text instead: its perplexity per token, character and byte.

    A BERT is scored on documents: how many hidden words it names, and whether it knows what follows what.

    clearhead score --model runs/de-en --source test.de --target test.en

    clearhead score --hypotheses output.txt --target test.en

    clearhead score --model runs/new --split test --against runs/old

    clearhead score --model runs/imdb --split test --png confusion.png

    clearhead score --model runs/fashion-vit --split test --reduce merge --r 4

    clearhead score --model runs/de-en --split test --reduce merge --r 2 --against runs/de-en

    clearhead score --model runs/shakespeare --text play.txt

    clearhead score --model runs/imdb-bert --split validation

    Parameters
    ----------
    source
        The test set's source side.
    target
        The test set's reference translations.
    tsv
        Instead of two files: one of both, in the columns of the training data or the first two; or labelled texts.
    csv
        For a classifier: labelled texts between commas, columns named in the first line.
    jsonl
        For a classifier: labelled texts, one JSON object a line.
    folder
        For a classifier: labelled texts as files, or for a vit pictures, in a folder for each label.
    text
        For a language model: a text to foretell, plain or .gz; for a BERT: documents, one a line.
    hypotheses
        Translations made earlier, one a line, to be scored as they are.
    split
        Score on the validation or test data that the model's training config names or holds out.
    part
        Score only this part of a split, by its language or file, such as de; without it, all together and each.
    against
        Another model, or a file of translations, to compare with: the difference, and whether it may be chance.
    language
        Target language, such as zh: decides how BLEU cuts words; the model's own unless given.
    like
        Score also in a published protocol: bentrevett or wu2021, and for a language model nanogpt; may be repeated.
    beam
        Hypotheses kept side by side; 1 is greedy.
    limit
        Score only the first so many pairs, or so many labelled texts, evenly spaced.
    save
        Write the translations, or the labels, to this file.
    min_bleu
        Exit with 1 if BLEU is lower: a gate for scripts.
    png
        For a classifier: draw its confusion matrix into this file.
    baseline
        For a classifier: fit the linear baseline too, which takes its time.
    min_accuracy
        For a classifier or a BERT: exit with 1 if its accuracy, in per cent, is lower.
    """
    if (model is None) == (hypotheses is None):
        raise UsageError("score either a --model or a file of --hypotheses")
    if save is not None and not save.parent.is_dir():
        raise MissingInputError(f"there is no directory {save.parent} to save {save.name} in")
    if save is not None and save.is_dir():
        raise UsageError(f"--save {save} is a directory: name a file in it")
    refuse_ending("--png", png, ".png")
    kind = None if model is None else _kind_of(model)
    labelled: dict[str, Any] = {"csv": csv, "jsonl": jsonl, "folder": folder}
    if model is not None and kind == "classifier":
        useless = {
            "--text": text, "--source": source, "--target": target, "--part": part, "--language": language,
            "--like": like, "--beam": beam, "--min-bleu": min_bleu, "--workers": workers,
        }  # fmt: skip
        files = {kind: path for kind, path in {"tsv": tsv, **labelled}.items() if path is not None}
        return score_classifier(
            model, files, split, limit, useless, against=against, png=png, save=save, baseline=baseline,
            min_accuracy=min_accuracy, as_json=as_json, device=device, engine=engine, threads=threads,
            fewer=fewer,
        )  # fmt: skip
    if model is not None and kind == "vit":
        useless = {
            "--tsv": tsv, "--csv": csv, "--jsonl": jsonl, "--text": text, "--source": source, "--target": target,
            "--part": part, "--language": language, "--like": like, "--beam": beam, "--min-bleu": min_bleu,
            "--workers": workers,
        }  # fmt: skip
        return score_pictures(
            model, folder, split, limit, useless, against=against, png=png, save=save, min_accuracy=min_accuracy,
            as_json=as_json, device=device, engine=engine, threads=threads,
            fewer=fewer,
        )  # fmt: skip
    if model is not None and kind == "bert":
        useless = {
            "--tsv": tsv, "--csv": csv, "--jsonl": jsonl, "--folder": folder, "--source": source, "--target": target,
            "--part": part, "--against": against, "--language": language, "--like": like, "--beam": beam,
            "--save": save, "--min-bleu": min_bleu, "--png": png, "--workers": workers,
            "--engine": None if engine == "torch" else engine,
        }  # fmt: skip
        return score_guesses(
            model, text, split, limit, useless, min_accuracy=min_accuracy, as_json=as_json, device=device,
            threads=threads, fewer=fewer,
        )  # fmt: skip
    for flag, value in {**labelled, "png": png, "min-accuracy": min_accuracy}.items():
        if value is not None:
            raise UsageError(f"--{flag} is for classifiers, and this is none: leave it out")
    if model is not None and (text is not None or kind == "gpt"):
        useless = {
            "--source": source, "--target": target, "--tsv": tsv, "--part": part, "--against": against, "--save": save,
            "--language": language, "--beam": beam, "--limit": limit, "--min-bleu": min_bleu, "--workers": workers,
            **fewer.flags,
        }  # fmt: skip
        return score_text(
            model, text, split, useless, like=like or (), as_json=as_json, device=device, engine=engine,
            threads=threads,
        )  # fmt: skip
    from clearhead.evaluate import compare
    from clearhead.evaluate import score as score_texts
    from clearhead.protocols import score_like, tokenizer_of

    parts: dict[str, list[int]] = {}
    if model is None:
        assert hypotheses is not None
        useless = {
            "--source": source, "--tsv": tsv, "--text": text, "--split": split, "--part": part, "--beam": beam,
            "--engine": engine, "--workers": workers, **fewer.flags,
        }  # fmt: skip
        found, references = _compared(hypotheses, target, limit, useless)
        rival = None if against is None else _rival(against, None, references, beam, limit, device)
    else:
        if [split, tsv, source or target].count(None) < 2:
            raise UsageError("one test set at a time: --source FILE --target FILE, --tsv FILE, or --split test")
        from clearhead.run.engines import load_translator
        from clearhead.run.scoring import pairs_to_score, readable, translated

        pairs, known_language = pairs_to_score(model, source, target, tsv, split, limit, part)
        language = language or known_language
        for name in like or ():
            tokenizer_of(name, language)
        translator = load_translator(model, engine=engine, device=device, threads=threads, workers=workers)
        if split is not None and len(fitting := readable(translator, pairs)) < len(pairs):
            long, most = len(pairs) - len(fitting), translator.max_len - 1
            show.note(f"{long:,} of {len(pairs):,} texts have more than {most} tokens and are left out, as in training")
            pairs = fitting
        texts, references, parts = [pair.source for pair in pairs], [pair.reference for pair in pairs], _parts(pairs)
        fewer.switch_on(translator)
        rival = None if against is None else _rival(against, model, texts, beam, limit, device)
        with show.counting("translating", len(pairs)) as done:
            found = list(translated(translator, texts, beam=beam, progress=done, workers=workers))
    if save is not None:
        save.write_text("".join(f"{line}\n" for line in found), encoding="utf-8", newline="\n")
    theirs = None if rival is None else rival()
    with show.waiting("scoring"):
        scores = score_texts(found, references, target_language=language)
        others = [score_like(name, found, references, target_language=language) for name in like or ()]
        of_parts = {
            name: score_texts([found[row] for row in rows], [references[row] for row in rows], target_language=language)
            for name, rows in parts.items()
        }
        compared = compare(found, theirs, references, target_language=language) if theirs is not None else []
    _print(scores, others, of_parts, compared, as_json=as_json)
    if min_bleu is not None and scores.bleu < min_bleu:
        show.fail(f"BLEU {scores.bleu:.2f} is below {min_bleu:g}")
        return 1
    return 0


def _kind_of(model: Path) -> str:
    from clearhead.engines.directory import is_exported, read_exported

    if is_exported(model):
        return read_exported(model).notes.kind
    from clearhead.run.using import kind_of

    return kind_of(model)


def _compared(
    hypotheses: Path, target: Path | None, limit: int | None, useless: Mapping[str, object]
) -> tuple[list[str], list[str]]:
    """Translations made earlier and their references."""
    if target is None:
        raise UsageError("--hypotheses needs the references: --target FILE")
    for flag, value in useless.items():
        if value is not None:
            raise UsageError(f"--hypotheses are compared with --target only: leave out {flag}")
    return list(islice(read_lines(hypotheses), limit)), list(islice(read_lines(target), limit))


def _rival(
    against: Path, model: Path | None, texts: Sequence[str], beam: int | None, limit: int | None, device: str
) -> Callable[[], list[str]]:
    """What gives the other system's translations of the same texts, or refuses at once what cannot."""
    if not against.is_dir():
        lines = list(islice(read_lines(against), limit))
        if len(lines) != len(texts):
            raise DataError(
                f"{against} has {len(lines):,} lines, and there are {len(texts):,} texts: one each is needed"
            )
        return lambda: lines
    if model is None:
        raise UsageError("--hypotheses are compared with a file of translations: --against FILE")
    from clearhead.run.engines import load_translator
    from clearhead.run.scoring import translated

    translator = load_translator(against, device=device)

    def translate() -> list[str]:
        with show.counting("translating with the other", len(texts)) as done:
            return list(translated(translator, texts, beam=beam, progress=done))

    return translate


def _parts(pairs: Sequence[ToScore]) -> dict[str, list[int]]:
    """Which rows belong to which part, if there are several."""
    parts: dict[str, list[int]] = {}
    for row, pair in enumerate(pairs):
        if pair.part is not None:
            parts.setdefault(pair.part, []).append(row)
    return parts if len(parts) > 1 else {}


def _print(
    scores: Scores,
    others: Sequence[ProtocolScore],
    parts: Mapping[str, Scores],
    compared: Sequence[Comparison],
    *,
    as_json: bool,
) -> None:
    if as_json:
        tree = scores.as_json()
        tree |= {"like": [asdict(other) for other in others]} if others else {}
        tree |= {"parts": {name: part.as_json() for name, part in parts.items()}} if parts else {}
        tree |= {"against": [{**asdict(one), "difference": one.difference} for one in compared]} if compared else {}
        sys.stdout.write(json.dumps(tree, ensure_ascii=False) + "\n")
        return
    _print_scores(scores, others)
    for part, found in parts.items():
        sys.stdout.write(f"\n{part}\n")
        _print_scores(found, ())
    if compared:
        sys.stdout.write("\nagainst the other\n")
    for one in compared:
        difference = f"{one.difference:+.2f} (the other {one.theirs:.2f}), p = {one.p_value:.4f}"
        sys.stdout.write(f"{one.metric:<12} {difference}  {one.signature}\n")


def _print_scores(scores: Scores, others: Sequence[ProtocolScore]) -> None:
    for name, value, interval, signature in (
        ("BLEU", scores.bleu, scores.bleu_interval, scores.bleu_signature),
        *((f"{other.protocol}", other.bleu, other.interval, other.signature) for other in others),
        ("chrF", scores.chrf, scores.chrf_interval, scores.chrf_signature),
    ):
        within = f"  95 % interval {interval[0]:.2f} to {interval[1]:.2f}" if interval else ""
        sys.stdout.write(f"{name:<12} {value:6.2f}{within}  {signature}\n")
    sys.stdout.write(f"{'exact match':<12} {100 * scores.exact_match:6.2f} % of {scores.count:,}\n")
