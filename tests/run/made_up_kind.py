"""A kind of model that nobody needs, made of all that a kind consists of: does a row of digits have more ones or twos?

It reads no text and writes none, its answers are right or wrong, and while it learns, rows are turned around by chance.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from clearhead.checkpoint import StoredModel
from clearhead.cli import planning
from clearhead.config import Record, Tree, one_of
from clearhead.data.examples import Draw, Integers
from clearhead.models import MODELS, Model, ModelConfig
from clearhead.nn.embedding import TokenEmbedding
from clearhead.nn.initialise import initialise
from clearhead.nn.stacks import build_stack
from clearhead.run.settings import RUNS, RunConfig
from clearhead.run.task import About, Prepared, Task, Ticket, shown
from clearhead.run.tasks import TASKS
from clearhead.text.tokenizer import TokenizerPair
from clearhead.training.events import Noted, Reading, Sample, Terms
from clearhead.training.losses import Loss, LossSum
from clearhead.training.objectives import OBJECTIVES
from clearhead.training.sizing import Choice

KIND = "majority"
HELD_OUT = 12


# The model -----------------------------------------------------------------------------------------------------------


class MajorityConfig(ModelConfig):
    kind: Annotated[str, one_of([KIND], "model")] = KIND
    num_digits: int = 0
    dim: int = 8
    max_len: int = 16
    num_layers: int = 1


class Majority(Model):
    Config = MajorityConfig
    config: MajorityConfig
    reads_text: ClassVar[bool] = False

    def __init__(self, config: MajorityConfig) -> None:
        super().__init__(config)
        self.embedding = TokenEmbedding(config.num_digits, config.dim)
        self.encoder = build_stack(
            dim=config.dim, num_heads=2, ff_dim=8, num_layers=config.num_layers, max_len=config.max_len
        )
        self.head = nn.Linear(config.dim, 2)
        initialise(self)

    def forward(
        self, ids: Int[Tensor, "batch time"], real: Bool[Tensor, "batch time"]
    ) -> Float[Tensor, "batch classes"]:
        x = self.encoder(self.embedding(ids), real=real) * real[..., None]
        return self.head(x.sum(1) / real.sum(1, keepdim=True))


# The data ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RowsBatch:
    ids: Integers
    labels: Integers

    @property
    def num_answers(self) -> int:
        return len(self.labels)


@dataclass(eq=False)
class Rows:
    """Rows of ones and twos; 0 is padding."""

    rows: list[list[int]]
    draws: set[Draw | None] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> Integers:
        return np.array([len(row) for row in self.rows], dtype=np.int32)

    @property
    def sort_keys(self) -> tuple[Integers, ...]:
        return (self.lengths,)

    @property
    def answers(self) -> Integers:
        return np.ones(len(self), dtype=np.int64)

    @property
    def work(self) -> Integers:
        return self.lengths

    def batch(self, rows: Integers, draw: Draw | None) -> RowsBatch:
        self.draws.add(draw)
        ids = np.zeros((len(rows), max(len(self.rows[row]) for row in rows)), dtype=np.int64)
        for place, row in enumerate(rows):
            turned = draw is not None and np.random.SeedSequence([*draw, int(row)]).generate_state(1)[0] % 2
            ids[place, : len(self.rows[row])] = self.rows[row][:: -1 if turned else 1]
        return RowsBatch(ids, np.array([majority(self.rows[row]) for row in rows]))


def majority(row: list[int]) -> int:
    return int(row.count(2) > row.count(1))


# The run -------------------------------------------------------------------------------------------------------------


class MajorityData(Record):
    tsv: str | None = None
    """A file of rows; without one they are made."""
    count: int = 60


class MajorityRun(RunConfig):
    out: str = "runs/majority"
    data: MajorityData = MajorityData()
    model: MajorityConfig = MajorityConfig()


class LoadedMajority:
    def __init__(self, model: Majority) -> None:
        self.model = model.eval()

    def decide(self, row: list[int]) -> int:
        ids = torch.tensor([row])
        with torch.inference_mode():
            return int(self.model(ids, ids > 0).argmax())


class MajorityTask(Task[MajorityRun, list[list[int]], Majority]):
    verb = "decide"
    terms = Terms("rows", ("row", "majority", "said"), has_perplexity=False)

    def given(self, files: Mapping[str, str]) -> Tree:
        return dict(files)

    def examine(self, config: MajorityRun, progress: Any = None) -> list[list[int]]:
        if config.data.tsv is not None:
            return [[int(sign) for sign in line] for line in Path(config.data.tsv).read_text().split()]
        random = np.random.default_rng(config.train.seed)
        return [random.integers(1, 3, 2 * random.integers(1, 5) + 1).tolist() for _ in range(config.data.count)]

    def choose(self, config: MajorityRun, found: list[list[int]], memory: int) -> list[Choice]:
        return [Choice("model.dim", 16, f"{len(found)} rows"), Choice("train.steps", 6, "they are short")]

    def prepare(
        self, config: MajorityRun, found: list[list[int]], tokenizers: TokenizerPair | None = None
    ) -> Generator[Noted | Reading, None, Prepared]:
        yield Noted(f"{len(found)} rows")
        return self._split(found)

    def open_prepared(self, config: MajorityRun, tokenizers: TokenizerPair | None, ticket: Ticket) -> Prepared:
        return self._split(self.examine(config))

    def _split(self, found: list[list[int]]) -> Prepared:
        training, validation = Rows(found[HELD_OUT:]), Rows(found[:HELD_OUT])
        return Prepared(None, training, validation, len(training), lambda: (str(len(found)),))

    def shape(self, config: MajorityRun, prepared: Prepared) -> MajorityConfig:
        return config.model.model_copy(update={"num_digits": 3})

    def samples(self, model: Majority, prepared: Prepared, device: str) -> tuple[Sample, ...]:
        assert isinstance(prepared.validation, Rows)
        rows = [prepared.validation.rows[number] for number in shown(prepared.validation)]
        return tuple(Sample(str(row), str(majority(row)), str(LoadedMajority(model).decide(row))) for row in rows)

    def about(self, config: MajorityRun) -> About:
        return About(
            title="Majority",
            pipeline_tag="text-classification",
            languages=[],
            unit="rows",
            origin="nowhere",
            licence="none",
            rows={"shape": f"{config.model.dim} wide"},
            per="row",
            example="clearhead decide 121",
        )

    def use(self, stored: StoredModel, device: str) -> LoadedMajority:
        assert isinstance(stored.model, Majority)
        return LoadedMajority(stored.model)


def decide(model: Majority, batch: RowsBatch, loss: Loss) -> LossSum:
    ids, labels = torch.from_numpy(batch.ids), torch.from_numpy(batch.labels)
    return loss.of_classes(model(ids, ids > 0), labels)


@pytest.fixture
def made_up_kind(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The kind in all tables, for one test."""
    monkeypatch.setitem(MODELS, KIND, Majority)
    monkeypatch.setitem(OBJECTIVES, KIND, decide)
    monkeypatch.setitem(RUNS, KIND, MajorityRun)
    monkeypatch.setitem(TASKS, KIND, MajorityTask())
    monkeypatch.setitem(planning.KINDS, KIND, planning.Kind(("tsv",), "--tsv FILE"))
    return KIND
