"""How a model's tokens become fewer: the settings that all models with an encoder share, and how to switch them on."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from clearhead.config import Record, one_of
from clearhead.errors import ConfigError
from clearhead.models.model import Model
from clearhead.nn.reduction import REDUCTIONS, Reduction, build_reductions
from clearhead.nn.stacks import Stack

FIRST_THRESHOLD = 0.3


class ReduceConfig(Record):
    """Which tokens are merged or dropped between the layers of an encoder."""

    kind: Annotated[str, one_of(REDUCTIONS, "reduction")] = "none"
    """none; merge (tokens that are alike become one); prune (tokens that nobody looks at are dropped, and how many is
    learnt); prune_hard (the same with thresholds that stay as they are, and dropped in training too)."""
    r: int = Field(8, ge=0)
    """merge: how many tokens go into others in each layer; 0 is none."""
    r_last: int | None = Field(None, ge=0)
    """merge: as many in the last layer, if not r; in between it changes evenly."""
    threshold: float | None = Field(None, ge=0)
    """prune: where the threshold of the last layer begins, in even shares of attention: at 1, tokens go that got less
    than if all were looked at alike. Earlier layers begin lower, and 0 drops nothing. Left out, it is what was learnt,
    or 0.3."""
    temperature: float = Field(0.1, gt=0, le=1)
    """prune: how gradual the threshold is while it is learnt."""
    weight: float = Field(0.1, ge=0)
    """prune: what keeping all tokens costs in the loss: more drops more."""

    def reductions(self, num_layers: int) -> list[Reduction]:
        """One reduction for each layer."""
        return build_reductions(
            self.kind,
            num_layers,
            r=self.r,
            r_last=self.r_last,
            threshold=FIRST_THRESHOLD if self.threshold is None else self.threshold,
            temperature=self.temperature,
        )


def reduce_tokens(model: Model, config: ReduceConfig) -> None:
    """Switch a reduction on in a model that is there, whether it was trained with one or not."""
    encoder = getattr(model, "encoder", None)
    if not isinstance(encoder, Stack) or not hasattr(model.config, "reduce"):
        raise ConfigError(f"the tokens of a {model.config.kind} cannot become fewer: it has no encoder that allows it")
    before = encoder.state_dict()
    encoder.reduce_by(config.reductions(len(encoder.blocks)))
    if config.threshold is None:
        learnt = {name: x for name, x in before.items() if name.endswith(".threshold") and name in encoder.state_dict()}
        encoder.load_state_dict({**encoder.state_dict(), **learnt})
    model.config = model.config.model_copy(update={"reduce": config})
