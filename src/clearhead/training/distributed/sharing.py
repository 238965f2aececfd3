"""A model and a team in, the model shared out over its processes out: whole on each of them, or a part of it.

A new way to share a model out is one class and one line in SHARDINGS.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.parallel import DistributedDataParallel

from clearhead.data.examples import Batch
from clearhead.nn.norms import BatchNorm
from clearhead.nn.stacks import Block
from clearhead.training.distributed.team import Team
from clearhead.training.losses import Loss, LossSum
from clearhead.training.objectives import Objective
from clearhead.training.precision import computing_in


class Lesson(nn.Module):
    """A model, its loss and its objective as one module: all use of the weights is inside its forward pass."""

    def __init__(self, model: nn.Module, loss: Loss, objective: Objective, precision: str) -> None:
        super().__init__()
        self.model, self.loss, self.objective, self.precision = model, loss, objective, precision

    def forward(self, batch: Batch) -> LossSum:
        with computing_in(self.precision, next(self.model.parameters()).device):
            return self.objective(self.model, batch, self.loss)


class Pooled:
    """Sums over the tokens of one process in, sums over those of the team out: one for all batch norms of a lesson."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self.counts = True
        """Whether the tokens of this process belong to the batch."""

    def __call__(self, sums: Tensor) -> Tensor:
        return cast(Tensor, _SumOverTeam.apply(sums if self.counts else sums * 0, self.team))


class _SumOverTeam(torch.autograd.Function):
    """A sum over the team; what everybody makes of it goes back to all whose parts it is made of."""

    @staticmethod
    def forward(context: Any, part: Tensor, team: Team) -> Tensor:
        context.team = team
        return _summed(part, team)

    @staticmethod
    @once_differentiable
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _summed(grads[0], context.team), None


def _summed(part: Tensor, team: Team) -> Tensor:
    total = part.clone(memory_format=torch.contiguous_format)
    team.add_up(total)
    return total


class Sharing:
    """How the weights of a lesson are shared out over a team; in a team of one, which this is for, not at all."""

    def __init__(self, lesson: Lesson, team: Team) -> None:
        self.lesson, self._pool = lesson, Pooled(team)
        norms = [] if team.is_solo else [module for module in lesson.modules() if isinstance(module, BatchNorm)]
        for norm in norms:
            norm.pool = self._pool
        self.splits_batches = bool(norms)
        """Whether all of the team must be at the same batch at the same time, for its statistics."""

    def learn(self, batch: Batch, counts: bool = True) -> LossSum:
        """The loss of a batch, to be followed by a backward pass; gradients will be the mean over the team.

        One that does not count is there for the others' sake, whose statistics it leaves alone.
        """
        self._pool.counts = counts
        return self._forward(batch)

    def _forward(self, batch: Batch) -> LossSum:
        return self.lesson(batch)

    def measure(self, batch: Batch) -> LossSum:
        """The loss of a batch; there will be no backward pass."""
        return self.lesson(batch)

    def keeping_gradients(self, kept: bool) -> AbstractContextManager[object]:
        """Around passes, forward and backward, whose gradients are not exchanged yet, if `kept`."""
        return nullcontext()

    def settle(self) -> None:
        """Let the weights be as the optimizer knows them, after measuring."""
        return

    def warm_up(self, batch: Batch) -> None:
        """Do once, before the first step, what would make that step differ from later ones."""
        return


class Replicated(Sharing):
    """Every process has all weights, and gradients are exchanged while the backward pass goes on."""

    def __init__(self, lesson: Lesson, team: Team) -> None:
        super().__init__(lesson, team)
        with warnings.catch_warnings():
            # Newer versions of torch have another word for it, which older ones do not know.
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            self.wrapped = DistributedDataParallel(
                lesson, broadcast_buffers=False, gradient_as_bucket_view=True, init_sync=False
            )
        if team.board is not None:
            self.wrapped.register_comm_hook(team, lambda team, bucket: _mean(team, bucket.buffer()))

    def _forward(self, batch: Batch) -> LossSum:
        return self.wrapped(batch)

    def keeping_gradients(self, kept: bool) -> AbstractContextManager[object]:
        return self.wrapped.no_sync() if kept else nullcontext()

    def warm_up(self, batch: Batch) -> None:
        # After its first pass DDP groups gradients anew, and groups decide in which order numbers are added: without
        # this, the first step of a resumed run would add in another order than the same step of an unbroken one.
        buffers = {name: buffer.clone() for name, buffer in self.lesson.named_buffers()}
        self.lesson.train()
        self.learn(batch).total.backward()
        self.lesson.zero_grad(set_to_none=True)
        for name, buffer in self.lesson.named_buffers():
            buffer.copy_(buffers[name])


def _mean(team: Team, gradients: Tensor) -> torch.futures.Future[Tensor]:
    """The mean of the team's gradients, in their place; DDP wants it as something that may come later."""
    team.add_up(gradients, team.size)
    mean: torch.futures.Future[Tensor] = torch.futures.Future()
    mean.set_result(gradients)
    return mean


class Sharded(Sharing):
    """Every process has its part of weights, gradients and optimizer state, and borrows the rest block by block."""

    def __init__(self, lesson: Lesson, team: Team) -> None:
        # Only here: it takes a second, which a process alone should not have to wait.
        from torch.distributed.fsdp import fully_shard

        super().__init__(lesson, team)
        mesh = dist.device_mesh.init_device_mesh(team.device.type, (team.size,))
        for module in lesson.model.modules():
            if isinstance(module, Block):
                fully_shard(module, mesh=mesh)
        self.wrapped = fully_shard(lesson, mesh=mesh)

    @contextmanager
    def keeping_gradients(self, kept: bool) -> Iterator[None]:
        self.wrapped.set_requires_gradient_sync(not kept)
        yield

    def settle(self) -> None:
        # The outermost weights stay together after a forward pass, in case a backward pass follows.
        self.wrapped.reshard()


SHARDINGS: dict[str, type[Sharing]] = {"none": Replicated, "full": Sharded}


def share_out(lesson: Lesson, team: Team, sharding: str) -> Sharing:
    """Give every process of a team its part in a lesson, with the leader's weights; make the optimizer after this."""
    if team.is_solo:
        return Sharing(lesson, team)
    with torch.no_grad():
        for tensor in (*lesson.model.parameters(), *lesson.model.buffers()):
            team.fill(tensor, None)
    return SHARDINGS[sharding](lesson, team)
