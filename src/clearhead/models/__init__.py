"""Wiring only: each file puts the parts of `nn/` together into one paper's model.

A new model is one file with a subclass of `Model` that carries its `Config`, and one line in MODELS; docs/extending.md
has the rest of the way.
"""

from __future__ import annotations

from clearhead.models.bert import Bert
from clearhead.models.classifier import Classifier
from clearhead.models.gpt import Gpt
from clearhead.models.model import Model, ModelConfig
from clearhead.models.translator import Translator
from clearhead.models.vit import Vit

__all__ = ["MODELS", "Model", "ModelConfig"]

MODELS: dict[str, type[Model]] = {
    "translator": Translator,
    "classifier": Classifier,
    "bert": Bert,
    "gpt": Gpt,
    "vit": Vit,
}
