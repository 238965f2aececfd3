"""Wiring only: each file puts the parts of `nn/` together into one paper's model.

A new model is one file with a class that carries its `Config`, and one line in MODELS.
"""

from __future__ import annotations

from clearhead.models.translator import Translator

MODELS: dict[str, type[Translator]] = {"translator": Translator}
