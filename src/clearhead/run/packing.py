"""A model or run directory in, a smaller model directory, the same weights in fewer bits, ready to be shipped, out."""

from __future__ import annotations

from pathlib import Path

from clearhead.checkpoint import load_model, locate, save_model
from clearhead.data.naming import kept_settings
from clearhead.run.card import with_section
from clearhead.storage import refuse_existing


def pack(model: Path, out: Path, dtype: str = "float16") -> int:
    """Write a model in a shorter number format; how many bytes the directory has comes back."""
    refuse_existing(out)
    stored = load_model(model)
    home, _ = locate(model)
    scaled = " (matrices, with a float32 scale for each row; the rest in float16)" if dtype == "int8" else ""
    remark = f"The weights are stored in {dtype}{scaled} and computed with in float32. Packed by `clearhead pack`."
    save_model(
        out,
        stored.model,
        stored.tokenizers,
        generation=stored.generation,
        card=with_section(_text(home, "README.md"), "Storage", remark),
        training_config=kept_settings(home, out),
        dtype=dtype,
    )
    return sum(path.stat().st_size for path in out.iterdir())


def _text(home: Path, name: str) -> str:
    return (home / name).read_text(encoding="utf-8") if (home / name).is_file() else ""
