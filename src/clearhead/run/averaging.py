"""A run directory in, a model directory with the mean of some of its checkpoints out."""

from __future__ import annotations

from pathlib import Path

from clearhead.checkpoint import all_steps, best_first, load_model, read_tensors, restore_model, save_model
from clearhead.data.naming import kept_settings
from clearhead.errors import DataError, UsageError
from clearhead.run.card import altered_card
from clearhead.storage import refuse_existing, verify
from clearhead.training.averaging import average


def average_run(run: Path, out: Path, *, last: int | None = None, best: int | None = None) -> list[str]:
    """Write the mean of the `last` newest or the `best` best checkpoints; their names come back."""
    if (last is None) == (best is None):
        raise UsageError("say which checkpoints to average: --last N or --best N")
    wanted = last or best or 0
    if wanted < 1:
        raise UsageError(f"cannot average {wanted} checkpoints: say 1 or more")
    refuse_existing(out)
    stored = load_model(run)
    directory = run / "checkpoints"
    paths = all_steps(directory)[-last:] if last is not None else best_first(directory)[:best]
    if len(paths) < wanted:
        kept = "last" if last is not None else "best"
        raise DataError(f"{run} has {len(paths)} such checkpoints, not {wanted}: train with a larger train.keep_{kept}")
    for path in paths:
        verify(path)
    restore_model(stored.model, average(read_tensors(path / "model.safetensors") for path in paths), run)
    names = [path.name for path in paths]
    home = run / "model" if (run / "model").is_dir() else run
    card = (home / "README.md").read_text(encoding="utf-8") if (home / "README.md").is_file() else ""
    save_model(
        out,
        stored.model,
        stored.tokenizers,
        generation=stored.generation,
        card=altered_card(card, stored.model, f"The weights are the mean of {', '.join(names)}."),
        training_config=kept_settings(run, out),
    )
    return names
