"""What comes out of reading somebody else's model: one of ours, and what is needed to compare the two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clearhead.models import Model
from clearhead.text.tokenizer import TokenizerPair


@dataclass(frozen=True)
class Imported:
    """A model of ours with somebody else's weights."""

    model: Model
    tokenizers: TokenizerPair | None
    generation: dict[str, Any] | None
    rows: dict[str, Sequence[int]]
    """By side, the original's id of each of our ids; under `mask`, what it writes into a gap."""
    notes: Sequence[str] = ()
    """What a person should know: heads that are missing, for example."""
    verb: str | None = None
    """The command it is for, if not that of its kind."""
