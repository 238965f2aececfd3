"""A Hugging Face directory in, one of our models with its tokenizers out.

A new family is one file with a function that reads it and one that compares it with `transformers`, and one line in
FAMILIES under its model_type.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from clearhead.config import build
from clearhead.errors import ConfigError, DataError, UnavailableError
from clearhead.export import bert, gpt2, marian, vit
from clearhead.export.downloaded import CONFIG, Downloaded, read_downloaded
from clearhead.export.imported import Imported
from clearhead.generate.settings import GenerationConfig


class Family(NamedTuple):
    """What there is to know of one family of models."""

    read: Callable[[Downloaded], Imported]
    differences: Callable[[Path, Imported], float]
    """The largest difference of a score between the original in transformers and what was read."""


def find_family(path: Path) -> tuple[Family, Downloaded]:
    """The family of a model, and what its directory holds."""
    downloaded = read_downloaded(path)
    family = str(downloaded.config.get("model_type"))
    if family not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise UnavailableError(f"{path} is a model of the family '{family}'; what can be imported: {known}")
    return FAMILIES[family], downloaded


def read_family(family: Family, downloaded: Downloaded) -> Imported:
    """What a directory becomes; settings that no model of ours can have, or other weights than they say, are an error.

    How it searches is checked too, so that nothing is written which cannot be loaded.
    """
    try:
        imported = family.read(downloaded)
        if imported.generation is not None:
            search = downloaded.search if downloaded.search.tree else downloaded.settings
            build(GenerationConfig, imported.generation, str(search.path))
    except ConfigError as error:
        # Models do not know which file their settings come from.
        where = "" if str(error).startswith(str(downloaded.path)) else f"{downloaded.path / CONFIG}: "
        raise DataError(f"{where}{error}") from None
    except (IndexError, RuntimeError) as error:  # torch, of tensors that have another shape than was said.
        reason = str(error).partition("\n")[0]
        raise DataError(f"{downloaded.path}: its weights do not fit its {CONFIG}: {reason}") from error
    return imported


FAMILIES: dict[str, Family] = {
    "marian": Family(marian.import_marian, marian.differences),
    "gpt2": Family(gpt2.import_gpt2, gpt2.differences),
    "bert": Family(bert.import_bert, bert.differences),
    "vit": Family(vit.import_vit, vit.differences),
}
