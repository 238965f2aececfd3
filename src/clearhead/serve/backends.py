"""What the server asks of whatever computes: texts in, results out, a batch at a time.

A backend is one of four: it translates, writes, classifies, or lets people look inside. Each engine (torch,
CTranslate2, ONNX Runtime) brings its own; `opening.py` has their table. What a batch gives for a row must not depend on
its other rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol


class Watch(Protocol):
    """Whoever waits for a batch, as seen from inside it; rows are named by their place in the batch."""

    def unwanted(self) -> Sequence[int]:
        """The rows that nobody waits for any more: they may be given up at once, and get any result."""

    def tell(self, place: int, news: Any) -> None:
        """Pass on what a row has come to so far."""


class Lane:
    """Where things are computed: what shares a lane shares its threads, and with one thread takes turns."""

    def __init__(self, name: str, width: int = 1) -> None:
        self.name = name
        self.width = width


class Backend(Protocol):
    """What all backends have."""

    @property
    def lane(self) -> Lane:
        """Where it computes."""

    @property
    def most_tokens(self) -> int:
        """Tokens of one batch, padding included."""

    @property
    def most_rows(self) -> int:
        """Rows of one batch."""


class TranslateOptions(NamedTuple):
    """How texts are translated; rows with the same options go into one batch."""

    results: int = 1
    """Translations of each text, best first."""


class Translated(NamedTuple):
    """One translation of one text."""

    text: str
    score: float


class TextTranslator(Backend, Protocol):
    """Translates texts that are no longer than it can read."""

    @property
    def longest(self) -> int:
        """The most tokens it reads."""

    def count(self, text: str) -> int:
        """The tokens of a text."""

    def translate_batch(
        self, texts: Sequence[str], options: TranslateOptions, watch: Watch
    ) -> Sequence[Sequence[Translated]]:
        """The translations of each text, best first, none of them empty-handed."""


@dataclass(frozen=True)
class WriteOptions:
    """How a text is continued; rows with the same options go into one batch."""

    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    top: int = 0
    """How many of the likeliest tokens of each step to tell."""


class Prompt(NamedTuple):
    """One text to be continued once."""

    ids: tuple[int, ...]
    most_tokens: int
    """How long the continuation may be."""
    chance: int
    """What is drawn follows from this number, and from nothing else in the batch."""


class WrittenToken(NamedTuple):
    """One token of a continuation, with the model's own log-probabilities."""

    text: str
    log_prob: float
    top: tuple[tuple[str, float], ...] = ()


class Piece(NamedTuple):
    """What is new in a continuation; all pieces together are the whole."""

    text: str
    tokens: tuple[WrittenToken, ...]


class Written(NamedTuple):
    """A whole continuation."""

    text: str
    tokens: tuple[WrittenToken, ...]
    finish: Literal["stop", "length"]


class Writer(Backend, Protocol):
    """Continues texts; tells its watch a Piece for each step that has something new to say."""

    @property
    def longest(self) -> int | None:
        """The most tokens of a prompt and its continuation together, if there is a limit."""

    def read(self, text: str) -> tuple[int, ...]:
        """The ids of a prompt."""

    def text(self, ids: Sequence[int]) -> str:
        """The text of a prompt's ids, or a DataError if they are none."""

    def group(self, prompt: Prompt) -> Hashable:
        """Something that is equal for prompts that may go into one batch."""

    def write_batch(self, prompts: Sequence[Prompt], options: WriteOptions, watch: Watch) -> Sequence[Written]:
        """The continuation of each prompt."""


class Label(NamedTuple):
    """A label and how likely it is."""

    name: str
    probability: float


class TextClassifier(Backend, Protocol):
    """Gives texts labels."""

    def count(self, text: str) -> int:
        """The tokens of a text."""

    def classify_batch(self, texts: Sequence[str], watch: Watch) -> Sequence[Sequence[Label]]:
        """The labels of each text, likeliest first."""


class Looked(NamedTuple):
    """What a look inside has found."""

    view: dict[str, Any]
    """Everything, as docs/view-format.md describes it."""
    text: str
    """What was written."""
    loss: float
    """The mean negative log-probability of a token of that."""


class Inspector(Backend, Protocol):
    """Lets people look at every head while a text is read and another is written."""

    @property
    def longest(self) -> int:
        """The most tokens it reads."""

    def count(self, text: str) -> int:
        """The tokens of a text."""

    def look(self, text: str, target: str | None, ablate: Sequence[str]) -> Looked:
        """What every head looked at, some of them switched off."""
