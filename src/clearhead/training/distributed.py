"""Processes that torchrun has started in, one team that trains one model out; a process alone is a team of one.

The team of one does nothing that costs anything. In a larger one every process makes the same calls in the same order:
what only the first may do (files, words for people) is done between two calls. Only tensors, and bytes of JSON, travel.
A new way to share a model out is one class and one line in SHARDINGS.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from clearhead.data.examples import Batch
from clearhead.errors import ClearheadError, ConfigError, UnavailableError
from clearhead.nn.stacks import Block
from clearhead.training.losses import Loss, LossSum
from clearhead.training.objectives import Objective
from clearhead.training.precision import computing_in

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store
    from torch.distributed.tensor import DTensor

TIMEOUT_VARIABLE = "CLEARHEAD_RENDEZVOUS_TIMEOUT"
DEFAULT_TIMEOUT = 300.0
"""Seconds in which the processes of a team must find each other."""
STEP_TIMEOUT = timedelta(minutes=30)
"""How long a process waits for the others in a step, before it takes them for lost."""
PATIENCE = timedelta(days=7)
"""How long it waits for what only one of them does: reading and tokenising a large corpus takes its time."""


# The team ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Team:
    """The processes that train one model, as one of them sees it."""

    rank: int = 0
    """Which of them this is; 0 leads: it alone reads and writes the run directory and speaks to people."""
    size: int = 1
    local_rank: int = 0
    """Which of those on this host; 0 prepares the data for all of them."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    restarts: int = 0
    """How often the launcher has started the team anew because one of it was lost."""
    control: dist.ProcessGroup | None = field(default=None, repr=False, compare=False)
    """For what is said seldom and may be waited for long."""
    memory: Store | None = field(default=None, repr=False, compare=False)
    """What outlives a restart."""

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

    def add_up(self, tensor: Tensor) -> None:
        """Let a tensor be the sum of the team's."""
        if not self.is_solo:
            dist.all_reduce(tensor)

    def average(self, buffers: Iterable[Tensor]) -> None:
        """Let running statistics be the mean of the team's."""
        if not self.is_solo:
            for buffer in buffers:
                self.add_up(buffer)
                buffer /= self.size

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


# Joining -------------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """What the launcher told this process."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int
    restarts: int
    is_hosted: bool
    """Whether the launcher itself answers at the address; else the first process does."""


def find_place(environment: Mapping[str, str]) -> Place | None:
    """This process's place in a team, by the variables that torchrun sets; None if it is alone.

    >>> find_place({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "host", "MASTER_PORT": "29500"})
    Place(rank=1, size=2, local_rank=1, local_size=1, address='host', port=29500, restarts=0, is_hosted=False)
    """
    needed = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return None
    missing = [name for name in needed if name not in environment]
    if missing:
        raise ConfigError(f"RANK is set but {' and '.join(missing)} not: start with torchrun, or set them all, or none")

    def number(name: str, default: str = "0") -> int:
        text = environment.get(name, default)
        if not text.isdecimal():
            raise ConfigError(f"{name} should be a number, not '{text}'")
        return int(text)

    place = Place(
        number("RANK"),
        number("WORLD_SIZE"),
        number("LOCAL_RANK"),
        number("LOCAL_WORLD_SIZE", "1"),
        environment["MASTER_ADDR"],
        number("MASTER_PORT"),
        number("TORCHELASTIC_RESTART_COUNT"),
        environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )
    if not place.rank < place.size:
        raise ConfigError(f"RANK is {place.rank}, and of {place.size} processes the last has {place.size - 1}")
    return place


def join(device: torch.device) -> Team:
    """Meet the other processes, if there are any; `device` without a number means each one's own."""
    place = find_place(os.environ)
    if place is None:
        return Team(device=device)
    if str(device) == "cuda":
        device = _own_gpu(place)
    if place.size == 1:
        memory = _meet(place, _timeout(os.environ)) if place.is_hosted else None
        return Team(device=device, restarts=place.restarts, memory=memory)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if device.type not in ("cpu", "cuda"):
        raise UnavailableError(f"{place.size} processes cannot train on '{device.type}': add --device cpu")
    store = _meet(place, _timeout(os.environ))
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=_prefixed(f"team {place.restarts} of {place.size}", store),
            rank=place.rank,
            world_size=place.size,
            timeout=STEP_TIMEOUT,
        )
        control = dist.new_group(backend="gloo", timeout=PATIENCE)
        _keep_for_ever(dist.group.WORLD, control)
    except (RuntimeError, ValueError) as error:
        raise UnavailableError(
            f"rank {place.rank} found the meeting point {place.address}:{place.port}, but not the other processes "
            f"({_brief(error)}): check that the hosts may talk on all ports, and name the network card in "
            "GLOO_SOCKET_IFNAME (and NCCL_SOCKET_IFNAME) if there are several"
        ) from error
    # Where a process of the team is the meeting point, nothing outlives it, and there is nobody to start it again.
    memory = store if place.is_hosted else None
    return Team(place.rank, place.size, place.local_rank, device, place.restarts, control, memory)


def _keep_for_ever(*groups: object) -> None:
    """Let the end of the process be the end of these: a group that is taken apart waits for its threads.

    It does so with Python's lock in its hand, and one of them may be waiting for that lock to let go of a tensor: where
    a process of the team had vanished, the others then hung for ever.
    """
    for group in groups:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def _own_gpu(place: Place) -> torch.device:
    there = torch.cuda.device_count()
    if place.local_size > there:
        raise UnavailableError(
            f"this host has {there} GPUs for {place.local_size} processes: start {there}, or add --device cpu"
        )
    return torch.device("cuda", place.local_rank)


def _timeout(environment: Mapping[str, str]) -> float:
    text = environment.get(TIMEOUT_VARIABLE, str(DEFAULT_TIMEOUT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise ConfigError(f"{TIMEOUT_VARIABLE} should be a number of seconds, not '{text}'")
    return seconds


def _meet(place: Place, seconds: float) -> Store:
    """Reach the meeting point, and wait until all of the team have."""
    where, until = f"{place.address}:{place.port}", time.monotonic() + seconds
    hosts = place.rank == 0 and not place.is_hosted
    if not hosts:
        _reach(place, until, seconds)
    try:
        found = dist.TCPStore(  # type: ignore[attr-defined]
            place.address, place.port, None, hosts, timeout=timedelta(seconds=seconds), wait_for_workers=False
        )
    except RuntimeError as error:
        raise UnavailableError(f"rank {place.rank} cannot meet the others at {where}: {_brief(error)}") from None
    store = _prefixed("clearhead", found)
    agreed = place.size
    if not place.is_hosted:
        # A launcher counts for itself, and may change its mind while it runs, when hosts come and go.
        agreed = int(store.compare_set("size", "", str(place.size)))
    if agreed != place.size:
        raise ConfigError(
            f"rank {place.rank} was told of {place.size} processes and another one of {agreed}: "
            "start every host with the same numbers"
        )
    meeting = _prefixed(f"meeting {place.restarts} of {place.size}", store)
    if meeting.add("arrived", 1) == place.size:
        meeting.set("complete", "")
    # Asked for again and again, since torch would end a longer wait with a page of warnings.
    while not meeting.check(["complete"]):
        if time.monotonic() > until:
            raise UnavailableError(
                f"rank {place.rank} waited {seconds:g} s at {where} and {meeting.add('arrived', 0)} of {place.size} "
                f"processes came: check that every host was started, or raise {TIMEOUT_VARIABLE}"
            )
        time.sleep(0.05)
    return store


def _prefixed(prefix: str, store: Store) -> Store:
    return dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]


def _reach(place: Place, until: float, seconds: float) -> None:
    """Knock until someone opens: torch would, too, but with a page of warnings."""
    while True:
        try:
            socket.create_connection((place.address, place.port), timeout=max(until - time.monotonic(), 0.1)).close()
            return
        except OSError as error:
            if time.monotonic() >= until:
                raise UnavailableError(
                    f"rank {place.rank} tried {place.address}:{place.port} for {seconds:g} s and could not reach it "
                    f"({error.strerror or error}): check that the first host runs, that MASTER_ADDR and MASTER_PORT "
                    f"name it, and that no firewall is between; {TIMEOUT_VARIABLE} sets how long to try"
                ) from None
        time.sleep(min(0.2, max(until - time.monotonic(), 0.0)))


def _brief(error: Exception) -> str:
    return " ".join(str(error).split("\n")[0].split())[:160]


# One model on many processes -----------------------------------------------------------------------------------------


class Lesson(nn.Module):
    """A model, its loss and its objective as one module: all use of the weights is inside its forward pass."""

    def __init__(self, model: nn.Module, loss: Loss, objective: Objective, precision: str) -> None:
        super().__init__()
        self.model, self.loss, self.objective, self.precision = model, loss, objective, precision

    def forward(self, batch: Batch) -> LossSum:
        with computing_in(self.precision, next(self.model.parameters()).device):
            return self.objective(self.model, batch, self.loss)


class Sharing:
    """How the weights of a lesson are shared out over a team; in a team of one, which this is for, not at all."""

    def __init__(self, lesson: Lesson, team: Team) -> None:
        self.lesson = lesson

    def learn(self, batch: Batch) -> LossSum:
        """The loss of a batch, to be followed by a backward pass; gradients will be the mean over the team."""
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

    def learn(self, batch: Batch) -> LossSum:
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


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether this process has only its part of a tensor."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """A tensor with all its shards; the whole team must ask."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor
