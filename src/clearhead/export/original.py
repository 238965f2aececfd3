"""A Hugging Face directory in, the same model as transformers run it out: what ours is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

LENGTHS = (2, 3, 5, 9, 17)
"""Of the sequences that are compared."""


def load_original(path: Path, kind: str, **settings: Any) -> Any:
    """The model of this class of transformers, in single precision, ready to be asked."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    # Stored in half, it would be run in half.
    options = {"local_files_only": True, "use_safetensors": True, "dtype": torch.float32, **settings}
    return getattr(transformers, kind).from_pretrained(path, **options).eval()
