"""A model, batches and settings in, events out: the training loop, a generator that never prints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from clearhead.data.batches import Batches, Cursor, PairBatch
from clearhead.errors import DivergedError
from clearhead.training.events import Event, Finished, Progress, Sample, Saved, Started, Validated
from clearhead.training.losses import Loss
from clearhead.training.objectives import Objective
from clearhead.training.optimizers import Optimizer
from clearhead.training.precision import computing_in
from clearhead.training.schedules import SCHEDULES, Course
from clearhead.training.settings import TrainConfig


@dataclass(frozen=True)
class TrainingState:
    """How far a run has come; with the weights, the optimizer and the random state, all that resuming needs."""

    step: int = 0
    cursor: Cursor = field(default_factory=lambda: Cursor(epoch=0, batch=0))
    best_loss: float | None = None
    best_step: int | None = None
    validations_without_gain: int = 0
    seconds: float = 0.0


class Keeper(Protocol):
    """Where checkpoints go."""

    def save(self, state: TrainingState, validation_loss: float | None) -> Path: ...


@dataclass(frozen=True)
class StepResult:
    """What one optimizer step did, summed over its batches."""

    loss: float
    nll: float
    tokens: int
    grad_norm: float
    seconds: float
    cursor: Cursor


@dataclass
class Loop:
    """Everything one run needs; `run` yields what happens."""

    model: nn.Module
    optimizer: Optimizer
    loss: Loss
    objective: Objective
    batches: Batches
    config: TrainConfig
    validation: Callable[[], Iterable[PairBatch]]
    samples: Callable[[], tuple[Sample, ...]]
    keeper: Keeper
    dim: int
    stop: Callable[[], bool] = lambda: False

    def run(self, state: TrainingState) -> Iterator[Event]:
        """Train from `state` to the end, or until `stop` says so."""
        config = self.config
        total = config.total_steps(self.batches.num_batches(0))
        yield Started(state.step, total, self._count_parameters(), str(self._device()), config.precision)
        began, resumed_at, spent_before = time.perf_counter(), state.step, state.seconds
        stream = self.batches.stream(state.cursor)
        window: list[StepResult] = []
        saved_step, reason = state.step, "done"
        while state.step < total:
            # Asked before each step and not after validations only: a run that had ended so, resumed, has still ended.
            if config.patience is not None and state.validations_without_gain >= config.patience:
                reason = "early stop"
                break
            step = state.step + 1
            result = self.step(stream, step, total)
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
            if self.stop():
                reason = "interrupted"
                break
        if saved_step != state.step:
            yield self._save(state, None)
        yield Finished(state.step, reason, state.seconds, state.best_step, state.best_loss)

    def step(self, stream: Iterator[tuple[Cursor, PairBatch]], step: int, total: int) -> StepResult:
        """Take one optimizer step over the next `accumulate` batches."""
        began = time.perf_counter()
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        pulled = [next(stream) for _ in range(self.config.accumulate)]
        tokens = sum(batch.num_target_tokens for _, batch in pulled)
        loss = nll = 0.0
        for _, batch in pulled:
            with computing_in(self.config.precision, self._device()):
                sums = self.objective(self.model, batch, self.loss)
            # Divided by the real tokens of the whole step, so that accumulated batches weigh what they hold.
            (sums.total / tokens).backward()
            loss, nll = loss + float(sums.total.detach()), nll + float(sums.nll)
        if not math.isfinite(loss):
            raise self._diverged(step, f"the loss is {loss}", [batch for _, batch in pulled])
        grad_norm = self._clip(step, [batch for _, batch in pulled])
        rate = SCHEDULES[self.config.schedule](step, self._course(total))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return StepResult(loss, nll, tokens, grad_norm, time.perf_counter() - began, pulled[-1][0])

    def _clip(self, step: int, pulled: list[PairBatch]) -> float:
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        size = float(norm)
        if not math.isfinite(size):
            where = next(
                name for name, p in self.model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()
            )
            raise self._diverged(step, f"the gradient of {where} is not finite", pulled)
        if self.config.clip:
            nn.utils.clip_grads_with_norm_(parameters, self.config.clip, norm)
        return size

    def _diverged(self, step: int, what: str, pulled: list[PairBatch]) -> DivergedError:
        examples = ", ".join(str(index) for batch in pulled for index in batch.indices[:3])
        return DivergedError(
            f"step {step}: {what} (examples {examples}, … of the corpus); the weights were not touched: "
            "lower train.lr, raise train.warmup, or use train.precision = 'fp32', then go on with --resume"
        )

    @torch.no_grad()
    def measure(self) -> tuple[float, float]:
        """Loss and negative log-likelihood per token on the validation data."""
        self.model.eval()
        loss = nll = 0.0
        tokens = 0
        for batch in self.validation():
            with computing_in(self.config.precision, self._device()):
                sums = self.objective(self.model, batch, self.loss)
            loss, nll, tokens = loss + float(sums.total), nll + float(sums.nll), tokens + sums.tokens
        return loss / max(tokens, 1), nll / max(tokens, 1)

    def _validate(self, state: TrainingState) -> tuple[TrainingState, Validated]:
        loss, nll = self.measure()
        # A loss that is not a number is never better, not even than none.
        better = math.isfinite(loss) and (state.best_loss is None or loss < state.best_loss)
        state = replace(
            state,
            best_loss=loss if better else state.best_loss,
            best_step=state.step if better else state.best_step,
            validations_without_gain=0 if better else state.validations_without_gain + 1,
        )
        return state, Validated(state.step, loss, perplexity(nll), better, self.samples())

    def _save(self, state: TrainingState, validation_loss: float | None) -> Saved:
        return Saved(state.step, self.keeper.save(state, validation_loss))

    def _progress(self, window: list[StepResult], state: TrainingState, total: int, pace: float) -> Progress:
        tokens = sum(result.tokens for result in window)
        return Progress(
            step=state.step,
            total_steps=total,
            epoch=state.cursor.epoch + 1,
            loss=sum(result.loss for result in window) / tokens,
            perplexity=perplexity(sum(result.nll for result in window) / tokens),
            lr=SCHEDULES[self.config.schedule](state.step, self._course(total)),
            grad_norm=sum(result.grad_norm for result in window) / len(window),
            tokens_per_second=tokens / max(sum(result.seconds for result in window), 1e-9),
            seconds_left=pace * (total - state.step),
        )

    def _course(self, total: int) -> Course:
        return Course(self.config.lr, self.config.warmup, total, self.dim)

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _count_parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())


def perplexity(nll: float) -> float:
    """How many tokens the model hesitates between, on average."""
    return math.exp(min(nll, 700.0))
