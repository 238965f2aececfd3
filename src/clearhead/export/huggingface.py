"""A Hugging Face directory in, one of our models with its tokenizers out.

A new family is one file with a function that reads it and one that compares it with `transformers`, and one line in
FAMILIES under its model_type.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from clearhead.errors import UnavailableError
from clearhead.export import bert, gpt2, marian, vit
from clearhead.export.downloaded import Downloaded, read_downloaded
from clearhead.export.imported import Imported


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


FAMILIES: dict[str, Family] = {
    "marian": Family(marian.import_marian, marian.differences),
    "gpt2": Family(gpt2.import_gpt2, gpt2.differences),
    "bert": Family(bert.import_bert, bert.differences),
    "vit": Family(vit.import_vit, vit.differences),
}
