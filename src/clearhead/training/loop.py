"""A model, batches and settings in, events out: the training loop, a generator that never prints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, repeat
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from numpy.random import SeedSequence
from torch import nn

from clearhead.data.batches import Batches, Cursor, Part, Share
from clearhead.data.examples import where
from clearhead.errors import DivergedError
from clearhead.training.distributed import SOLO, Sharing, Team, whole
from clearhead.training.events import TOKENS, Event, Finished, Progress, Sample, Saved, Started, Terms, Validated
from clearhead.training.losses import Loss
from clearhead.training.objectives import Objective
from clearhead.training.optimizers import Optimizer, set_rate
from clearhead.training.schedules import SCHEDULES, Course
from clearhead.training.settings import TrainConfig


@dataclass(frozen=True)
class TrainingState:
    """How far a run has come, for any number of processes; with weights and optimizer, all that resuming needs."""

    step: int = 0
    cursor: Cursor = field(default_factory=lambda: Cursor(epoch=0, batch=0))
    best_loss: float | None = None
    best_step: int | None = None
    validations_without_gain: int = 0
    seconds: float = 0.0


class Keeper(Protocol):
    """Where checkpoints go."""

    def save(self, state: TrainingState, validation_loss: float | None, *, is_planned: bool = True) -> Path:
        """One that is not planned is there to go on from, and makes place for the next one."""


@dataclass(frozen=True)
class StepResult:
    """What one optimizer step did, summed over its batches and the team."""

    loss: float
    nll: float
    tokens: int
    grad_norm: float
    seconds: float
    cursor: Cursor
    right: float | None = None
    """How many answers were right, where that is counted."""


class Measured(NamedTuple):
    """What a model is worth on the validation data, per answer."""

    loss: float
    nll: float
    accuracy: float | None
    """None where right answers are not counted."""


@dataclass
class Loop:
    """Everything one run needs; `run` yields what happens."""

    sharing: Sharing
    optimizer: Optimizer
    batches: Batches
    config: TrainConfig
    validation: Callable[[], Iterable[Part]]
    """This process's share of the validation data; as many parts as the others have."""
    samples: Callable[[], tuple[Sample, ...]]
    keeper: Keeper
    dim: int
    stop: Callable[[], bool] = lambda: False
    team: Team = SOLO
    terms: Terms = TOKENS
    """What this kind of model's answers are called."""

    @property
    def model(self) -> nn.Module:
        return self.sharing.lesson.model

    @property
    def loss(self) -> Loss:
        return self.sharing.lesson.loss

    @property
    def objective(self) -> Objective:
        return self.sharing.lesson.objective

    def shares(self, cursor: Cursor | None = None) -> Iterator[Share]:
        """This process's part in each step from the cursor on."""
        cursor, accumulate, rank, size = cursor or Cursor(), self.config.accumulate, self.team.rank, self.team.size
        if not self.sharing.splits_batches:
            return self.batches.shares(cursor, accumulate, rank, size)
        # One batch is dealt out by its rows, several may be dealt out whole.
        single = self.batches.shares(cursor, 1, rank, size)
        return (_joined(tuple(islice(single, accumulate))) for _ in repeat(None))

    def run(self, state: TrainingState) -> Iterator[Event]:
        """Train from `state` to the end, or until `stop` says so."""
        config = self.config
        total = config.total_steps(self.batches.num_batches(0))
        size, device = self._count_parameters(), str(self.team.device)
        yield Started(state.step, total, size, device, self.sharing.lesson.precision, self.team.size)
        began, resumed_at, spent_before = time.perf_counter(), state.step, state.seconds
        shares = self.shares(state.cursor)
        if state.step < total:
            self.sharing.warm_up(next(self.shares(state.cursor)).parts[0].batch)
        window: list[StepResult] = []
        saved_step, reason = state.step, "done"
        while state.step < total:
            # Asked before each step and not after validations only: a run that had ended so, resumed, has still ended.
            if config.patience is not None and state.validations_without_gain >= config.patience:
                reason = "early stop"
                break
            step = state.step + 1
            result = self._resumable_step(shares, step, total)
            window.append(result)
            now = time.perf_counter()
            state = replace(state, step=step, cursor=result.cursor, seconds=spent_before + now - began)
            if step % config.log_every == 0 or step == total:
                pace = (now - began) / (step - resumed_at)
                yield self._progress(window, state, total, pace)
                window = []
            if step % config.validate_every == 0 or step == total:
                state, validated = self._validate(state)
                yield validated
                yield self._save(state, validated.loss)
                saved_step = step
            elif config.save_every is not None and step % config.save_every == 0:
                yield self._save(state, None)
                saved_step = step
            # Whoever asks during the last step gets what he would have got anyway.
            if step < total and self.team.any(self.stop()):
                reason = "interrupted"
                break
        if saved_step != state.step:
            yield self._save(state, None, is_planned=False)
        yield Finished(state.step, reason, state.seconds, state.best_step, state.best_loss)

    def _resumable_step(self, shares: Iterator[Share], step: int, total: int) -> StepResult:
        try:
            return self.step(shares, step, total)
        except DivergedError as error:
            raise DivergedError(f"{error}, then go on with --resume") from None

    def step(self, shares: Iterator[Share], step: int, total: int) -> StepResult:
        """Take one optimizer step over the next `accumulate` batches, together with the team."""
        began = time.perf_counter()
        self.sharing.lesson.train()
        self.optimizer.zero_grad(set_to_none=True)
        share = next(shares)
        torch.manual_seed(self._seed(step))
        loss = nll = right = 0.0
        is_counted = False
        for number, part in enumerate(share.parts, start=1):
            with self.sharing.keeping_gradients(number < len(share.parts)):
                sums = self.sharing.learn(part.batch, part.counts)
                # Divided by the real tokens of the whole step, so that batches weigh what they hold; gradients will
                # be the mean over the team, so this undoes that division.
                (sums.total * (part.counts * self.team.size / share.tokens)).backward()
            is_counted = sums.right is not None
            if part.counts:
                loss, nll, right = loss + float(sums.total.detach()), nll + float(sums.nll), right + (sums.right or 0)
        loss, nll, right = self.team.sum(loss, nll, right)
        if not math.isfinite(loss):
            raise self._diverged(step, f"the loss is {loss}", share.examples)
        grad_norm = self._clip(step, share.examples)
        rate = SCHEDULES[self.config.schedule](step, self._course(total))
        set_rate(self.optimizer, rate)
        self.optimizer.step()
        seconds = time.perf_counter() - began
        return StepResult(loss, nll, share.tokens, grad_norm, seconds, share.cursor, right if is_counted else None)

    def _seed(self, step: int) -> int:
        """What dropout follows from, so that no random state need be stored: the run's seed, the step, the process."""
        return int(SeedSequence([self.config.seed, step, self.team.rank]).generate_state(1, "uint64")[0] >> 1)

    def _clip(self, step: int, examples: Sequence[int]) -> float:
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = whole(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
        size = float(norm)
        if not math.isfinite(size):
            raise self._diverged(step, self._what_is_not_finite(), examples)
        if self.config.clip:
            nn.utils.clip_grads_with_norm_(parameters, self.config.clip, norm)
        return size

    def _what_is_not_finite(self) -> str:
        for name, p in self.model.named_parameters():
            if p.grad is not None and not whole(p.grad).isfinite().all():
                return f"the gradient of {name} is not finite"
        # Every number of it is finite, and the sum of their squares is not.
        return "the gradient is too large to be measured"

    def _diverged(self, step: int, what: str, examples: Sequence[int]) -> DivergedError:
        # A repeated example, or an altered copy of one, comes from the same place.
        places = dict.fromkeys(where(self.batches.examples, row) for row in examples)
        return DivergedError(
            f"step {step}: {what} ({', '.join(places)}, … of the data); the weights were not touched: lower train.lr, "
            "raise train.warmup, or use train.precision = 'fp32'"
        )

    @torch.no_grad()
    def measure(self) -> Measured:
        """Loss, negative log-likelihood and share of right answers on the validation data."""
        self.sharing.lesson.eval()
        loss = nll = tokens = right = 0.0
        is_counted = False
        for part in self.validation():
            sums = self.sharing.measure(part.batch)
            is_counted = sums.right is not None
            if part.counts:
                loss, nll, tokens = loss + float(sums.total), nll + float(sums.nll), tokens + sums.tokens
                right += sums.right or 0
        self.sharing.settle()
        loss, nll, tokens, right = self.team.sum(loss, nll, tokens, right)
        tokens = max(tokens, 1)
        return Measured(loss / tokens, nll / tokens, right / tokens if is_counted else None)

    def _validate(self, state: TrainingState) -> tuple[TrainingState, Validated]:
        loss, nll, accuracy = self.measure()
        # A loss that is not a number is never better, not even than none.
        better = math.isfinite(loss) and (state.best_loss is None or loss < state.best_loss)
        state = replace(
            state,
            best_loss=loss if better else state.best_loss,
            best_step=state.step if better else state.best_step,
            validations_without_gain=0 if better else state.validations_without_gain + 1,
        )
        return state, Validated(
            state.step, loss, self._perplexity(nll), better, self.samples(), accuracy, self.terms.heads
        )

    def _save(self, state: TrainingState, validation_loss: float | None, *, is_planned: bool = True) -> Saved:
        return Saved(state.step, self.keeper.save(state, validation_loss, is_planned=is_planned))

    def _progress(self, window: list[StepResult], state: TrainingState, total: int, pace: float) -> Progress:
        tokens = sum(result.tokens for result in window)
        right = [result.right for result in window if result.right is not None]
        return Progress(
            step=state.step,
            total_steps=total,
            epoch=state.cursor.epochs_begun,
            loss=sum(result.loss for result in window) / tokens,
            perplexity=self._perplexity(sum(result.nll for result in window) / tokens),
            lr=SCHEDULES[self.config.schedule](state.step, self._course(total)),
            grad_norm=sum(result.grad_norm for result in window) / len(window),
            tokens_per_second=tokens / max(sum(result.seconds for result in window), 1e-9),
            seconds_left=pace * (total - state.step),
            unit=self.terms.unit,
            accuracy=sum(right) / tokens if len(right) == len(window) else None,
        )

    def _perplexity(self, nll: float) -> float | None:
        return perplexity(nll) if self.terms.has_perplexity else None

    def _course(self, total: int) -> Course:
        return Course(self.config.lr, self.config.warmup, total, self.dim)

    def _count_parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())


def _joined(shares: Sequence[Share]) -> Share:
    """The shares of several batches as that of one step."""
    return Share(
        shares[-1].cursor,
        sum(share.tokens for share in shares),
        tuple(part for share in shares for part in share.parts),
        tuple(row for share in shares for row in share.examples),
    )


def perplexity(nll: float) -> float:
    """How many tokens the model hesitates between, on average."""
    return math.exp(min(nll, 700.0))
