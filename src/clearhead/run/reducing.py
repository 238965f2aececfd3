"""Settings in, a loaded model whose tokens become fewer by them out: what all share whose encoder allows it."""

from __future__ import annotations

from typing import Any

from clearhead.config import build
from clearhead.models.reduction import ReduceConfig, reduce_tokens


class Reducible:
    """A loaded model that can be told to let its tokens become fewer."""

    model: Any

    def reduce(self, **settings: Any) -> None:
        """Let its tokens become fewer, by the settings of `model.reduce`, such as kind="merge", r=8; none undoes it."""
        reduce_tokens(self.model, build(ReduceConfig, settings, "reduce"))
