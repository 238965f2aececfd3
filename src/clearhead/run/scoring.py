"""A model and a test set in, translations beside their references out, ready to be scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from clearhead.config import build
from clearhead.data.doctor import kept_pairs
from clearhead.data.naming import read_settings
from clearhead.data.number_split import Split
from clearhead.data.reasons import REASONS, Reason
from clearhead.data.sources import DataConfig, PairSource, Part, open_source
from clearhead.engines.texts import TextTranslator
from clearhead.errors import ConfigError, DataError, UsageError, choose

SPLITS: dict[str, Split] = {"validation": "validation", "test": "test"}


class ToScore(NamedTuple):
    """One pair of a test set."""

    source: str
    reference: str
    part: str | None = None
    """The part of the data it comes from, if there are several."""
    stem: str | None = None
    """That of the part's file: parts of one language have the same name."""


class TrainedOn(NamedTuple):
    """What a model remembers of its data."""

    data: DataConfig
    seed: int


def pairs_to_score(
    model: Path,
    source: Path | None,
    target: Path | None,
    tsv: Path | None,
    split: str | None,
    limit: int | None,
    part: str | None = None,
) -> tuple[list[ToScore], str | None]:
    """The source and reference of each test pair, and the target language if the model's training config names it."""
    trained_on = trained_on_by(model)
    if part is not None and split is None:
        raise UsageError("--part is one of the parts of a --split")
    pairs: list[ToScore] | None
    if split is not None:
        pairs = _split(trained_on, split, part)
    elif tsv is not None:
        table = DataConfig(kind="tsv", tsv=str(tsv))
        if trained_on is not None and trained_on.data.kind == "tsv":
            table = table.model_copy(update={"columns": trained_on.data.columns})
        pairs = _given(table, "train")
    elif source is not None and target is not None:
        pairs = _given(DataConfig(kind="files", source=str(source), target=str(target)), "train")
    else:
        raise UsageError("say what to score on: --source FILE --target FILE, --tsv FILE, or --split test")
    assert pairs is not None
    return list(islice(pairs, limit)), trained_on.data.target_language if trained_on else None


def translated(
    translator: TextTranslator,
    texts: Sequence[str],
    *,
    beam: int | None,
    progress: Callable[[int], None],
    workers: int | None = None,
) -> Iterator[str]:
    """The best translation of each text; `progress` hears how many are done."""
    config = translator.configured(**({} if beam is None else {"beam_size": beam}))
    for done, best in enumerate(translator.stream(texts, config, workers, scored=False), start=1):
        progress(done)
        yield best[0].text


def readable(translator: TextTranslator, pairs: Sequence[ToScore]) -> list[ToScore]:
    """The pairs that are not too long for a model: training left such pairs out as well."""
    return [pair for pair in pairs if translator.count(pair.source.strip()) <= translator.max_len]


def trained_on_by(model: Path) -> TrainedOn | None:
    """What a model or run directory remembers of its data, if anything."""
    for name in ("config.toml", "training_config.toml", "model/training_config.toml"):
        if (model / name).is_file():
            tree = read_settings(model / name)
            data = build(DataConfig, tree.get("data", {}), str(model / name))
            return TrainedOn(data, int(tree.get("train", {}).get("seed", 1)))
    return None


def _given(config: DataConfig, split: Split) -> list[ToScore] | None:
    source = open_source(config, split)
    return None if source is None else list(_readable(source))


def _readable(source: PairSource) -> Iterator[ToScore]:
    """Every pair counts in a score, duplicates included: only blank rows are passed over, and a bad one is named."""
    for raw in source.pairs():
        if raw.source is not None and raw.target is not None:
            yield ToScore(raw.source, raw.target)
        elif raw.reason is not Reason.EMPTY:
            raise DataError(f"{source.name} line {raw.number:,} cannot be scored: {REASONS[raw.reason][1]}")


def _split(trained_on: TrainedOn | None, split: str, part: str | None) -> list[ToScore]:
    chosen = choose(SPLITS, split, "split")
    pairs = _given(trained_on.data, chosen) if trained_on is not None else None
    if pairs is None and trained_on is not None:
        pairs = _held_out(trained_on, chosen)
    if pairs is None:
        raise ConfigError(f"the model's training config names no {split} data: use --source and --target")
    if part is None:
        return pairs
    assert trained_on is not None
    if not trained_on.data.parts:
        raise ConfigError("the model's training data has no parts: leave out --part")
    names = {name: name for known in trained_on.data.parts for name in (known.stem, known.name)}
    wanted = choose(names, part, "part of the data")
    is_language = any(known.language == wanted for known in trained_on.data.parts)
    return [pair for pair in pairs if wanted == (pair.part if is_language else pair.stem)]


def _held_out(trained_on: TrainedOn, split: Split) -> list[ToScore] | None:
    """The pairs that were set aside in training, found again by the same rule."""
    data = trained_on.data
    if split == "test" and data.hold_out_test is None:
        return None
    # Imported here because it needs torch, which scoring an exported model must not.
    from clearhead.run.preparing import examine_data

    examined = examine_data(data, trained_on.seed)
    mask = examined.tested if split == "test" else examined.held_out
    parts: Sequence[Part] = examined.source.parts
    of_pair = examined.checkup.parts
    nameless: list[tuple[str | None, str | None]] = [(None, None)]
    names = [(part.name, part.stem) for part in parts] or nameless
    return [
        ToScore(source, target, *names[of_pair[number - 1]])
        for number, source, target in kept_pairs(examined.source, examined.checkup)
        if mask[number - 1]
    ]
