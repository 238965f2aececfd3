"""A recipe's name, a TOML file, environment and flags in, one resolved configuration out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path

from clearhead.config import Record, Tree, build, override, read_toml
from clearhead.data.batches import BatchConfig
from clearhead.data.sources import DataConfig
from clearhead.errors import MissingInputError, did_you_mean
from clearhead.generate.settings import GenerationConfig
from clearhead.models.translator import TranslatorConfig
from clearhead.text.kinds import TokenizerConfig
from clearhead.training.settings import TrainConfig


class RunConfig(Record):
    """Everything that makes a run what it is."""

    out: str = "runs/translator"
    """The run directory."""
    data: DataConfig
    """Where the pairs come from."""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """How text becomes tokens."""
    batches: BatchConfig = BatchConfig()
    """How tokens become batches."""
    model: TranslatorConfig = TranslatorConfig()
    """The shape of the model."""
    train: TrainConfig
    """How it is trained."""
    generation: GenerationConfig = GenerationConfig()
    """How it is used unless the user says otherwise."""


def recipes() -> dict[str, Path]:
    """The built-in recipes by name."""
    folder = Path(str(resources.files("clearhead") / "recipes"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def find_recipe(name: str) -> Path:
    """The file that a recipe's name or a path means."""
    known = recipes()
    if name in known:
        return known[name]
    path = Path(name)
    if path.is_file():
        return path
    raise MissingInputError(f"there is no recipe or config file '{name}', {did_you_mean(name, known)}")


def resolve(tree: Tree, assignments: Iterable[str] = (), where: str = "the command line") -> RunConfig:
    """Check a tree of settings after environment and flags have had their say, in that order."""
    changed = override(override(tree, from_environment(os.environ)), assignments)
    return build(RunConfig, changed, where)


def read_config(path: Path, assignments: Iterable[str] = ()) -> RunConfig:
    """Read a config file, with overrides."""
    return resolve(read_toml(path), assignments, str(path))


def from_environment(environment: Mapping[str, str]) -> list[str]:
    """`CLEARHEAD_TRAIN__LR=3e-4` as the assignment `train.lr=3e-4`.

    >>> from_environment({"CLEARHEAD_TRAIN__LR": "3e-4", "HOME": "/root", "CLEARHEAD_DATA": "x"})
    ['train.lr=3e-4']
    """
    prefix = "CLEARHEAD_"
    return [
        f"{name.removeprefix(prefix).lower().replace('__', '.')}={value}"
        for name, value in sorted(environment.items())
        if name.startswith(prefix) and "__" in name
    ]
