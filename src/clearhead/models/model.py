"""What every model is to the rest: a module that carries its own settings, and says what goes with it into a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import nn

from clearhead.config import Record


class ModelConfig(Record):
    """The shape of a model; each kind has its own fields, these three among them."""

    # Declared for the type checker alone, so that each kind lists them where they belong among its own.
    if TYPE_CHECKING:
        kind: str
        dim: int
        max_len: int


class Model(nn.Module):
    """A model of one of the kinds in MODELS."""

    Config: ClassVar[type[ModelConfig]]
    config: ModelConfig
    reads_text: ClassVar[bool] = True
    """Whether tokenizers are stored with it."""
    generates: ClassVar[bool] = False
    """Whether it writes text token by token, so that settings of how are stored with it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
