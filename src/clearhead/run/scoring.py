"""A model and a test set in, translations beside their references out, ready to be scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from clearhead.config import build, read_toml
from clearhead.data.number_split import Split
from clearhead.data.sources import DataConfig, PairSource, open_source
from clearhead.errors import ConfigError, UsageError, choose
from clearhead.run.using import load

SPLITS: dict[str, Split] = {"validation": "validation", "test": "test"}


def pairs_to_score(
    model: Path, source: Path | None, target: Path | None, tsv: Path | None, split: str | None, limit: int | None
) -> tuple[list[tuple[str, str]], str | None]:
    """The source and reference of each test pair, and the target language if the model's training config names it."""
    trained_on = _training_data(model)
    pairs_from: PairSource | None
    if split is not None:
        pairs_from = _split(trained_on, split)
    elif tsv is not None:
        pairs_from = open_source(DataConfig(kind="tsv", tsv=str(tsv)), "train")
    elif source is not None and target is not None:
        pairs_from = open_source(DataConfig(kind="files", source=str(source), target=str(target)), "train")
    else:
        raise UsageError("say what to score on: --source FILE --target FILE, --tsv FILE, or --split test")
    assert pairs_from is not None
    # Every usable pair counts in a score, duplicates included: only what cannot be read is left out.
    pairs = [
        (raw.source, raw.target) for raw in pairs_from.pairs() if raw.source is not None and raw.target is not None
    ]
    return pairs[:limit], trained_on.target_language if trained_on else None


def translated(
    model: Path,
    texts: Sequence[str],
    *,
    beam: int | None,
    device: str,
    progress: Callable[[int], None],
    workers: int | None = None,
) -> list[str]:
    """The best translation of each text; `progress` hears how many are done."""
    translator = load(model, device)
    config = translator.configured(**({} if beam is None else {"beam_size": beam}))
    found = []
    for best in translator.stream(texts, config, workers):
        found.append(best[0].text)
        progress(len(found))
    return found


def _training_data(model: Path) -> DataConfig | None:
    for name in ("config.toml", "training_config.toml", "model/training_config.toml"):
        if (model / name).is_file():
            return build(DataConfig, read_toml(model / name).get("data", {}), str(model / name))
    return None


def _split(trained_on: DataConfig | None, split: str) -> PairSource:
    chosen = choose(SPLITS, split, "split")
    found = open_source(trained_on, chosen) if trained_on is not None else None
    if found is None:
        raise ConfigError(f"the model's training config names no {split} data: use --source and --target")
    return found
