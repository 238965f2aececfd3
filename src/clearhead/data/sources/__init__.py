"""Data settings come in; a source of raw aligned pairs for each split goes out; a kind is one class and one line."""

from __future__ import annotations

from clearhead.data.number_split import Split
from clearhead.data.sources.files import AlignedFiles, Joined, TabSeparated
from clearhead.data.sources.number_words import NumberWords
from clearhead.data.sources.pairs import PairSource, RawPair
from clearhead.data.sources.settings import DataConfig, Part
from clearhead.errors import ConfigError, choose

__all__ = [
    "SOURCES",
    "AlignedFiles",
    "DataConfig",
    "Joined",
    "NumberWords",
    "PairSource",
    "Part",
    "RawPair",
    "TabSeparated",
    "open_source",
]


def open_source(config: DataConfig, split: Split) -> PairSource | None:
    """Open a split of the data; validation and test are None if not given, training data must be there."""
    source = choose(SOURCES, config.kind, "kind of data").for_split(config, split)
    if source is None and split == "train":
        wanted = {"tsv": "data.tsv", "parts": "data.parts"}.get(config.kind, "data.source and data.target")
        raise ConfigError(f"no training data: set {wanted}")
    return source


SOURCES: dict[str, type[PairSource]] = {
    "files": AlignedFiles,
    "tsv": TabSeparated,
    "parts": Joined,
    "numbers": NumberWords,
}
