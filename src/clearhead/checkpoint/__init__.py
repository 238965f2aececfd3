"""A model, its tokenizers and its progress ↔ directories; a kill at any moment leaves the last good one whole."""

from clearhead.checkpoint.formats import DTYPES
from clearhead.checkpoint.models import (
    PICKLES,
    UNDER_WAY,
    StoredModel,
    describe_model,
    described_model,
    load_model,
    locate,
    rewrite_card,
    save_model,
    seal_description,
    verify_description,
)
from clearhead.checkpoint.steps import Checkpoints, all_steps, best_first, is_whole
from clearhead.checkpoint.tensors import (
    model_tensors,
    named_tensors,
    read_tensors,
    restore_model,
    write_tensors,
)

__all__ = [
    "DTYPES",
    "PICKLES",
    "UNDER_WAY",
    "Checkpoints",
    "StoredModel",
    "all_steps",
    "best_first",
    "describe_model",
    "described_model",
    "is_whole",
    "load_model",
    "locate",
    "model_tensors",
    "named_tensors",
    "read_tensors",
    "restore_model",
    "rewrite_card",
    "save_model",
    "seal_description",
    "verify_description",
    "write_tensors",
]
