"""A recipe's name, a TOML file, environment and flags in, one resolved configuration out.

A new kind of model has a subclass of `RunConfig` here, and one line in RUNS.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import model_validator

from clearhead.config import Record, Tree, build, override, to_toml, to_value
from clearhead.data.batches import BatchConfig
from clearhead.data.documents import DocumentConfig
from clearhead.data.labelled import LabelledConfig
from clearhead.data.naming import NamedFiles, read_settings
from clearhead.data.pictures import PicturesConfig
from clearhead.data.sources import DataConfig
from clearhead.data.windows import TextConfig
from clearhead.errors import ConfigError, MissingInputError, did_you_mean
from clearhead.generate.settings import GenerationConfig
from clearhead.models import ModelConfig
from clearhead.models.bert import BertConfig
from clearhead.models.classifier import ClassifierConfig
from clearhead.models.gpt import GptConfig
from clearhead.models.translator import TranslatorConfig
from clearhead.models.vit import VitConfig
from clearhead.nn.norms import NORMS
from clearhead.text.kinds import TokenizerConfig
from clearhead.training.settings import TrainConfig


class RunConfig(Record):
    """Everything that makes a run what it is: what all kinds of models share; each has its own `data` and `model`."""

    out: str = "runs/model"
    """The run directory."""
    init: str | None = None
    """A model or run directory to start from: its tokenizers are used, and of its weights all that fit."""
    data: Record
    """Where the examples come from."""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """How text becomes tokens."""
    batches: BatchConfig = BatchConfig()
    """How tokens become batches."""
    model: ModelConfig
    """The shape of the model."""
    train: TrainConfig
    """How it is trained."""
    generation: GenerationConfig = GenerationConfig()
    """How it is used unless the user says otherwise."""


class TranslatorRun(RunConfig):
    """Everything that makes the run of a translator what it is."""

    out: str = "runs/translator"
    """The run directory."""
    data: DataConfig
    """Where the pairs come from."""
    model: TranslatorConfig = TranslatorConfig()
    """The shape of the model."""


class ClassifierRun(RunConfig):
    """Everything that makes the run of a classifier what it is."""

    out: str = "runs/classifier"
    """The run directory."""
    data: LabelledConfig
    """Where the labelled texts come from."""
    model: ClassifierConfig = ClassifierConfig()
    """The shape of the model."""


class BertRun(RunConfig):
    """Everything that makes the run of a BERT what it is."""

    out: str = "runs/bert"
    """The run directory."""
    data: DocumentConfig
    """Where the documents come from."""
    model: BertConfig = BertConfig()
    """The shape of the model."""

    @model_validator(mode="after")
    def _rows_stay_whole(self) -> BertRun:
        if self.data.pack and self.model.reduce.kind != "none":
            raise ValueError(
                "tokens cannot become fewer where several texts share a row: leave out reduce or data.pack"
            )
        if self.data.pack and NORMS[self.model.norm].mixes_time:
            raise ValueError(
                f"texts that share a row would see each other through norm '{self.model.norm}': choose layer or rms, "
                "or leave out data.pack"
            )
        return self

    @model_validator(mode="after")
    def _is_read_once(self) -> BertRun:
        if self.train.agreement:
            raise ValueError("a BERT reads each batch once, so nothing can agree: leave out train.agreement")
        return self


class GptRun(RunConfig):
    """Everything that makes the run of a language model what it is."""

    out: str = "runs/gpt"
    """The run directory."""
    data: TextConfig
    """Where the text comes from."""
    model: GptConfig = GptConfig()
    """The shape of the model."""
    generation: GenerationConfig = GenerationConfig(strategy="sample", loop_guard=False)
    """How it is used unless the user says otherwise."""

    @model_validator(mode="after")
    def _spaces_are_kept(self) -> GptRun:
        if self.tokenizer.kind == "word":
            raise ValueError("a language model writes spaces and line ends, which words lack: choose bpe, char or byte")
        return self


class VitRun(RunConfig):
    """Everything that makes the run of a Vision Transformer what it is."""

    out: str = "runs/vit"
    """The run directory."""
    data: PicturesConfig
    """Where the pictures come from."""
    model: VitConfig = VitConfig()
    """The shape of the model."""


RUNS: dict[str, type[RunConfig]] = {
    "translator": TranslatorRun,
    "classifier": ClassifierRun,
    "bert": BertRun,
    "gpt": GptRun,
    "vit": VitRun,
}
"""By the kind of model."""
DEFAULT_KIND = "translator"
"""What a config that names no kind of model means."""


def kind_of(tree: Tree, where: str) -> str:
    """The kind of model that a tree of settings is for."""
    model = tree.get("model", {})
    kind = model.get("kind", DEFAULT_KIND) if isinstance(model, dict) else DEFAULT_KIND
    if kind not in RUNS:
        raise ConfigError(f"{where}: 'model.kind' = {kind!r}: unknown model, {did_you_mean(str(kind), RUNS)}")
    return str(kind)


def build_config(tree: Tree, where: str) -> RunConfig:
    """Check a tree against the settings of the kind of model that it names."""
    return build(RUNS[kind_of(tree, where)], tree, where)


CONFIGS = ("config.toml", "training_config.toml", "model/training_config.toml")
"""Where a model or run directory keeps the settings that it was trained by."""


def trained_by(path: Path) -> RunConfig | None:
    """The settings that a model was trained by, if its directory has them; those of an imported one are empty."""
    for name in CONFIGS:
        if (path / name).is_file() and (tree := read_settings(path / name)):
            return build_config(tree, str(path / name))
    return None


def unset(kind: str) -> RunConfig:
    """All settings of a kind of model as they stand before anybody has set one, also those that somebody must."""
    required = {name: field.annotation for name, field in RUNS[kind].model_fields.items() if field.is_required()}
    sections: dict[str, Any] = {
        name: section.model_construct()
        for name, section in required.items()
        if isinstance(section, type) and issubclass(section, Record)
    }
    return RUNS[kind].model_construct(**sections)


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
    return build_config(changed, where)


def read_config(path: Path, assignments: Iterable[str] = ()) -> RunConfig:
    """Read a config file, with overrides."""
    return resolve(read_settings(path), assignments, str(path))


def settings_for(directory: Path, config: RunConfig) -> str:
    """A configuration as the text of a file in a directory, with the data's folder as seen from there."""
    data = config.data
    if isinstance(data, NamedFiles):
        data = data.model_copy(update={"base": data.seen_from(directory)})
    return to_toml(config.model_copy(update={"data": data}))


LASTING = (
    "init", "data", "tokenizer", "batches", "model", "train.seed", "train.accumulate", "train.optimizer",
    "train.loss", "train.smoothing",
)  # fmt: skip
"""What stays as it was for as long as a run goes on: what its weights compute, what is trained on and what is held out,
what a step is, what the optimizer remembers, and what checkpoints are compared by."""
FREE = (
    "data.base", "data.workers", "data.drop_tokens", "data.split_pieces", "data.distort",
    "data.test", "data.test_source", "data.test_target", "data.test_tsv", "data.test_text", "data.test_pictures",
    "data.test_picture_labels",
    "model.dropout", "model.attention_dropout", "model.kernel", "model.reduce.temperature", "model.reduce.weight",
    "model.mean", "model.spread", "model.start",
)  # fmt: skip
"""What of that may change all the same: how hard training is made, where things are, how they are computed, the final
test, how fresh weights would be made, and the mean and spread of pictures, which another machine may work out to
another last digit."""


def check_lasting(run: Path, begun: RunConfig, now: RunConfig) -> None:
    """Refuse to go on with a run by settings that would make another one of it."""
    old, new = (dict(leaves(config.model_dump())) for config in (begun, now))
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        if before != after and _lasts(key) and not _is_one_file(begun.data, before, now.data, after):
            raise ConfigError(
                f"{run} began {_said(key, before)} and cannot go on {_said(key, after)}: leave that as it was, or "
                f"start a new run, with init = {to_value(str(run))} if its weights are wanted"
            )


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """All settings of a tree by their full names; in a list, names are numbers from 0."""
    if isinstance(value, (dict, list)):
        for name, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(entry, f"{key}.{name}" if key else str(name))
    else:
        yield key, value


def _lasts(key: str) -> bool:
    lasts, is_free = (any(f"{key}.".startswith(f"{name}.") for name in names) for names in (LASTING, FREE))
    return lasts and not is_free


def _is_one_file(begun: Record, before: Any, now: Record, after: Any) -> bool:
    """Whether two names mean the same file of data, or may: where the first is gone, it is taken to have moved."""
    if not isinstance(begun, NamedFiles) or not isinstance(now, NamedFiles) or begun.dataset is not None:
        return False
    if before not in begun.files or after not in now.files:
        return False
    there = _place(begun, before)
    return there is None or there == _place(now, after)


def _place(data: NamedFiles, name: str) -> Path | None:
    """Where a file is, if it is there."""
    try:
        return data.path(name).resolve(strict=True)
    except (MissingInputError, OSError):
        return None


def _said(key: str, value: Any) -> str:
    return f"without {key}" if value is None else f"with {key} = {to_value(value)}"


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
