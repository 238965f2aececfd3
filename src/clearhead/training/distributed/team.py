"""Processes that train one model, as one of them sees it; a process alone is a team of one, which costs nothing.

In a larger one every process makes the same calls in the same order: what only the first may do (files, words for
people) is done between two calls. Only tensors, and bytes of JSON, travel.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor

from clearhead.errors import ClearheadError, UnavailableError
from clearhead.training.distributed.board import Board

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store
    from torch.distributed.tensor import DTensor


@dataclass(frozen=True)
class Team:
    """The processes that train one model, as one of them sees it."""

    rank: int = 0
    """Which of them this is; 0 leads: it alone reads and writes the run directory and speaks to people."""
    size: int = 1
    local_rank: int = 0
    """Which of those on this host; 0 prepares the data for all of them."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    control: dist.ProcessGroup | None = field(default=None, repr=False, compare=False)
    """For what is said seldom and may be waited for long."""
    memory: Store | None = field(default=None, repr=False, compare=False)
    """What outlives a restart."""
    board: Board | None = field(default=None, repr=False, compare=False)
    """Where all are on one host, memory that all of them see."""

    @property
    def is_solo(self) -> bool:
        return self.size == 1

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def leads_host(self) -> bool:
        return self.local_rank == 0

    def sum(self, *numbers: float) -> tuple[float, ...]:
        """Sums over the team, the same to the bit on all of it."""
        if self.is_solo:
            return numbers
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total)
        return tuple(total.tolist())

    def any(self, wish: bool) -> bool:
        """Whether this is so for any of the team."""
        return wish if self.is_solo else self.sum(float(wish))[0] > 0

    def tell(self, tree: Any = None, source: int = 0) -> Any:
        """What one of the team has to say, to all of it; it must be fit for JSON."""
        if self.is_solo:
            return tree
        said = torch.frombuffer(bytearray(json.dumps(tree).encode()), dtype=torch.uint8)
        length = torch.tensor([len(said)])
        dist.broadcast(length, source, group=self.control)
        said = said if self.rank == source else torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(said, source, group=self.control)
        return json.loads(said.numpy().tobytes())

    @contextmanager
    def agreement(self) -> Iterator[None]:
        """Succeed or fail together: the error of one inside is raised by all of the team. No calls to it inside."""
        if self.is_solo:
            yield
            return
        problem: Exception | None = None
        try:
            yield
        except Exception as error:
            problem = error
        self._settle(problem)

    def _settle(self, problem: Exception | None) -> None:
        first = torch.tensor([self.size if problem is None else self.rank])
        dist.all_reduce(first, dist.ReduceOp.MIN, group=self.control)
        if int(first) == self.size:
            return
        known = isinstance(problem, ClearheadError)
        code = problem.exit_code if isinstance(problem, ClearheadError) else UnavailableError.exit_code
        said = {"code": code, "message": str(problem) if known else f"{type(problem).__name__}: {problem}"}
        told = self.tell(said, int(first))
        if problem is not None:
            raise problem
        error = ClearheadError(f"rank {int(first)}: {told['message']}" if int(first) else told["message"])
        error.exit_code = told["code"]
        raise error

    def fill(self, target: Tensor, value: Tensor | None) -> None:
        """Put the leader's whole value into everybody's tensor, or into everybody's shard of it."""
        if self.is_solo:
            assert value is not None
            target.copy_(value)
        elif is_sharded(target):
            target.copy_(self._dealt(target, value))
        else:
            if value is not None:
                target.copy_(value)
            dist.broadcast(target, 0)

    def spread(self, like: Tensor, value: Tensor | None, shape: list[int], dtype: torch.dtype) -> Tensor:
        """A new tensor with the leader's value; sharded as `like` is if it has the same shape, else whole."""
        if self.is_solo:
            assert value is not None
            return value.to(like.device)
        if is_sharded(like) and list(like.shape) == shape:
            return self._dealt(like, value)
        fresh = torch.empty(shape, dtype=dtype, device=like.device)
        self.fill(fresh, value)
        return fresh

    def _dealt(self, like: DTensor, value: Tensor | None) -> DTensor:
        from torch.distributed.tensor import distribute_tensor

        whole = value if value is not None else torch.empty(like.shape, dtype=like.dtype)
        whole = whole.detach().to(device=like.device, dtype=like.dtype)
        return distribute_tensor(whole, like.device_mesh, like.placements)

    def add_up(self, tensor: Tensor, parts: int = 1) -> None:
        """Let a tensor be the sum of the team's, each divided by `parts`."""
        if self.is_solo:
            return
        if self.board is not None and self.board.suits(tensor):
            self.board.add_up(tensor, parts)
            return
        if parts > 1:
            tensor /= parts
        dist.all_reduce(tensor)

    def note(self, key: str, text: str) -> None:
        """Remember something beyond a restart."""
        if self.memory is not None:
            self.memory.set(key, text)

    def noted(self, key: str) -> str | None:
        """What was remembered before a restart."""
        if self.memory is None or not self.memory.check([key]):
            return None
        return bytes(self.memory.get(key)).decode()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Around all that is done together: a team that breaks up inside does so in one clear sentence."""
        try:
            yield
        except Exception as error:
            if self.is_solo or not is_loss_of_contact(error):
                raise
            raise UnavailableError(
                f"rank {self.rank} of {self.size} has lost the others: one of them has ended, or the network is down; "
                "look for the first error, then go on with --resume"
            ) from error

    def leave(self) -> None:
        """End the team's life in this process."""
        if not self.is_solo and dist.is_initialized():
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group()


SOLO = Team()


def is_loss_of_contact(error: Exception) -> bool:
    """Whether torch says, in its own ways, that another process did not answer."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether this process has only its part of a tensor."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """A tensor with all its shards; the whole team must ask."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor
