"""A trained model and the name of a split in, batches of that split out, to try the model on again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from clearhead.config import read_toml
from clearhead.data.batches import BatchConfig, fixed_plan
from clearhead.data.examples import Batch, Examples
from clearhead.data.number_split import Split
from clearhead.errors import ConfigError, UsageError, choose
from clearhead.models import Model
from clearhead.run.seeing import LoadedVit, pictures_to_score
from clearhead.run.settings import RunConfig, VitRun, build_config
from clearhead.run.tasks import TASKS
from clearhead.run.using import load

TOKENS = 8192
"""What a batch holds, padding included."""
CONFIGS = ("config.toml", "training_config.toml", "model/training_config.toml")
Item = TypeVar("Item")

SPLITS: dict[str, Split] = {"validation": "validation", "test": "test"}


def trained_by(path: Path) -> RunConfig | None:
    """The settings that a model was trained by, if its directory has them."""
    for name in CONFIGS:
        if (path / name).is_file():
            return build_config(read_toml(path / name), str(path / name))
    return None


def batches_to_try(path: Path, split: str, limit: int | None = None) -> tuple[Model, list[Batch], bool]:
    """A model, the examples of a split in batches as it is used with, and whether it has learnt thresholds."""
    chosen = choose(SPLITS, split, "split")
    loaded = load(path, "cpu")
    if type(loaded) not in EXAMPLES:
        kind = loaded.model.config.kind
        raise UsageError(f"{path} is a {kind}, whose tokens cannot become fewer: use clearhead {TASKS[kind].verb}")
    config = trained_by(path)
    if config is None:
        raise ConfigError(f"{path} has no training config that names its {split} data")
    examples = EXAMPLES[type(loaded)](loaded, config, chosen)
    plan = fixed_plan(examples, BatchConfig(max_tokens=max(config.batches.max_tokens, TOKENS)))
    # Batches go from short to long: some of all lengths stand for all.
    some = plan if limit is None else evenly(plan, max(1, round(len(plan) * limit / len(examples))))
    batches = [examples.batch(rows, None) for rows in some]
    return loaded.model, batches, any(name.endswith(".threshold") for name in loaded.model.state_dict())


def evenly(items: Sequence[Item], count: int) -> list[Item]:
    """So many of them, evenly spaced.

    >>> evenly("abcdefg", 3), evenly("ab", 5)
    (['a', 'c', 'e'], ['a', 'b'])
    """
    count = min(count, len(items))
    return [items[place * len(items) // count] for place in range(count)]


def _pictures(loaded: LoadedVit, config: RunConfig, split: Split) -> Examples:
    assert isinstance(config, VitRun)
    return pictures_to_score(loaded, config, split, None)


EXAMPLES: dict[type, Callable[[Any, Any, Split], Examples]] = {LoadedVit: _pictures}
"""Where the examples come from, by what a model is used through."""
