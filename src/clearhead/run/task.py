"""What running a kind of model takes: the members that every task has, and what prepared data are to all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from clearhead.checkpoint import StoredModel
from clearhead.config import Tree
from clearhead.data.examples import Examples
from clearhead.errors import UsageError
from clearhead.models import Model, ModelConfig
from clearhead.run.settings import RunConfig
from clearhead.text.tokenizer import TokenizerPair
from clearhead.training.events import Noted, Reading, Sample, Terms
from clearhead.training.sizing import Choice

Ticket: TypeAlias = tuple[str, ...]
"""Names in the cache: all that another process on this host needs to open prepared data."""
Progress: TypeAlias = Callable[[Reading], None]

Config = TypeVar("Config", bound=RunConfig)
Found = TypeVar("Found")
AModel = TypeVar("AModel", bound=Model)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything of the data that training needs."""

    tokenizers: TokenizerPair | None
    """One of both sides where there is only one; None where no text is read."""
    training: Examples
    """Repetitions and altered copies included."""
    validation: Examples
    num_trained: int
    """How many different examples are trained on."""
    ticket: Callable[[], Ticket]
    """Puts into the cache what is not there yet, so that other processes can open the same, and names it."""


class About(NamedTuple):
    """What a model card says of a kind of model and its data."""

    title: str
    pipeline_tag: str
    """What model hubs call such a model."""
    languages: list[str]
    unit: str
    """What it was trained on, in the plural: pairs."""
    origin: str
    """Where these come from."""
    licence: str | None
    """That of the data, where it is known."""
    rows: dict[str, str]
    """Further rows of the table: the shape, the tokenizer."""
    per: str
    """What the loss is a mean over: token."""
    example: str
    """A command that uses the model in the current directory."""


class Measure(NamedTuple):
    """One number by which a model is judged."""

    name: str
    """As people write it: loss, BLEU, accuracy."""
    useful: Literal[-1, 1]
    """The sign of its change when something useful is taken from the model."""
    digits: int

    @property
    def key(self) -> str:
        """Its name in files."""
        return self.name.lower()


class Asked(NamedTuple):
    """What a user wants a model to be tried on."""

    files: Sequence[Path] = ()
    split: str | None = None
    limit: int | None = None
    """At most so many examples."""
    beam: int | None = None
    """For models that search."""

    def one_file(self) -> Path | None:
        """The file, where there can be only one, and nothing is searched for."""
        if len(self.files) > 1 or self.beam is not None:
            raise UsageError("such a model is tried on one file or folder (--on FILE), and --beam is for translators")
        return self.files[0] if self.files else None


class Trial(ABC):
    """Examples to try a model on again and again, and what is measured on them."""

    measures: ClassVar[tuple[Measure, ...]]
    unit: str
    """What there are `size` of."""
    size: int

    @abstractmethod
    def measure(self, progress: Callable[[int], None]) -> tuple[float, ...]:
        """A number for each measure, of the model as it is now; `progress` hears how many examples are done."""

    @abstractmethod
    def fingerprint(self) -> str:
        """The same for the same examples, measured in the same way."""


class Task(ABC, Generic[Config, Found, AModel]):
    """All that a run has to know of one kind of model; `Found` is what was learnt from looking at the data once."""

    verb: ClassVar[str]
    """The command that uses such a model."""
    terms: ClassVar[Terms]
    """What is asked for and answered, in people's words."""

    @abstractmethod
    def given(self, files: Mapping[str, str]) -> Tree:
        """The settings of the data that files on the command line mean, by the names of their flags."""

    @abstractmethod
    def examine(self, config: Config, progress: Progress | None = None) -> Found:
        """Read all data once, judge every example, and set some aside; `progress` hears from time to time."""

    @abstractmethod
    def choose(self, config: Config, found: Found, memory: int) -> list[Choice]:
        """Settings that fit the data and the free memory in bytes, each with its reason."""

    @abstractmethod
    def prepare(
        self, config: Config, found: Found, tokenizers: TokenizerPair | None = None
    ) -> Generator[Noted | Reading, None, Prepared]:
        """Train the tokenizers if there are none yet, and make examples; what a person should know is yielded."""

    @abstractmethod
    def open_prepared(self, config: Config, tokenizers: TokenizerPair | None, ticket: Ticket) -> Prepared:
        """Open what another process on this host has prepared."""

    @abstractmethod
    def shape(self, config: Config, prepared: Prepared) -> ModelConfig:
        """The model's settings with what comes from the data filled in: vocabulary sizes, labels."""

    @abstractmethod
    def samples(self, model: AModel, prepared: Prepared, device: str) -> tuple[Sample, ...]:
        """A few validation examples beside what the model makes of them."""

    @abstractmethod
    def about(self, config: Config) -> About:
        """What the model card says; the model's settings are complete by then."""

    @abstractmethod
    def use(self, stored: StoredModel, device: str) -> Any:
        """What a loaded model is used through; it has the model as `model`."""

    def trial(self, loaded: Any, model: Path, asked: Asked) -> Trial:
        """What heads of a loaded model are weighed on: files, or a split of the data it was trained on."""
        raise UsageError(f"{model} is a {loaded.model.config.kind}, whose heads cannot be weighed")


SHOWN = 3
"""How many validation examples a person is shown."""


def shown(examples: Examples) -> range:
    """Which validation examples a person is shown: a few, evenly spaced."""
    return range(0, len(examples), max(1, len(examples) // SHOWN))[:SHOWN]
