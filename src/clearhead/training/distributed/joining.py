"""What the launcher told a process in, the team it belongs to out, or one sentence on why they did not meet."""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.distributed as dist

from clearhead.errors import ConfigError, UnavailableError
from clearhead.training.distributed.board import Board, is_wanted, looked_at, put_up
from clearhead.training.distributed.team import Team

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

TIMEOUT_VARIABLE = "CLEARHEAD_RENDEZVOUS_TIMEOUT"
DEFAULT_TIMEOUT = 300.0
"""Seconds in which the processes of a team must find each other."""
STEP_TIMEOUT = timedelta(minutes=30)
"""How long a process waits for the others in a step, before it takes them for lost."""
PATIENCE = timedelta(days=7)
"""How long it waits for what only one of them does: reading and tokenising a large corpus takes its time."""


class Place(NamedTuple):
    """What the launcher told this process."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int
    is_hosted: bool
    """Whether the launcher itself answers at the address; else the first process does."""


def find_place(environment: Mapping[str, str]) -> Place | None:
    """This process's place in a team, by the variables that torchrun sets; None if it is alone.

    >>> find_place({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "host", "MASTER_PORT": "29500"})
    Place(rank=1, size=2, local_rank=1, local_size=1, address='host', port=29500, is_hosted=False)
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
        memory = _meet(place, _timeout(os.environ))[0] if place.is_hosted else None
        return Team(device=device, memory=memory)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if device.type not in ("cpu", "cuda"):
        raise UnavailableError(f"{place.size} processes cannot train on '{device.type}': add --device cpu")
    may_share = is_wanted(os.environ) and device.type == "cpu"
    store, meeting = _meet(place, _timeout(os.environ))
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=_prefixed(f"team {meeting}", store),
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
    team = Team(place.rank, place.size, place.local_rank, device, control, memory)
    return replace(team, board=_board(team, place, may_share))


def _board(team: Team, place: Place, may_share: bool) -> Board | None:
    """Memory to exchange tensors through, if all of the team can have it; the leader knows whether they should."""
    path: Path | None = None
    try:
        if team.leads and may_share and place.local_size == place.size:
            path = put_up(place.size)
        told = team.tell(None if path is None else str(path))
        memory = None if told is None else looked_at(Path(told), place.size)
        found = torch.tensor([int(memory is not None)])
        dist.all_reduce(found, dist.ReduceOp.MIN, group=team.control)
    finally:
        # Whoever looks at it keeps it; nobody else will find it, whatever becomes of this process.
        if path is not None:
            path.unlink()
    if memory is None or not found:
        return None
    token = torch.zeros(1)
    return Board(place.rank, place.size, memory, lambda: dist.all_reduce(token))


def free_port() -> int:
    """A port of this host on which nobody listens just now, for a team to meet at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


def _meet(place: Place, seconds: float) -> tuple[Store, str]:
    """Reach the meeting point, and wait until all of the team have; the name of this meeting comes along."""
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
    attend = _invite(store, place.size) if place.rank == 0 else _come(store, place.rank, place.size)
    # Asked for again and again, since torch would end a longer wait with a page of warnings.
    for attendance in attend:
        if attendance.meeting is not None:
            return store, attendance.meeting
        if time.monotonic() > until:
            raise UnavailableError(
                f"rank {place.rank} waited {seconds:g} s at {where} and {attendance.came} of {place.size} "
                f"processes came: check that every host was started, or raise {TIMEOUT_VARIABLE}"
            )
        time.sleep(0.05)
    raise AssertionError("whoever waits goes on waiting")


class Attendance(NamedTuple):
    """How far a meeting has come."""

    came: int
    meeting: str | None
    """Its name, once all are there."""


def _invite(store: Store, size: int) -> Iterator[Attendance]:
    """What the first process does: tell whoever is there what this meeting is called, until all have said so.

    A launcher's store outlives the processes, and each of its hosts counts restarts for itself, so there is nothing
    that all know of this meeting and that no earlier one had. What somebody of an earlier one left is answered as well,
    but he will not come.
    """
    meeting, missing = secrets.token_hex(8), set(range(1, size))
    while missing:
        for rank in list(missing):
            if store.check([_came(meeting, rank)]):
                missing.discard(rank)
            elif store.check([_call(rank)]):
                store.set(_answer(store.get(_call(rank)).decode()), meeting)
        if missing:
            yield Attendance(size - len(missing), None)
    store.set(meeting, "")
    yield Attendance(size, meeting)


def _come(store: Store, rank: int, size: int) -> Iterator[Attendance]:
    """What every other process does: call, hear what the meeting is called, say so, and wait until all have."""
    own = secrets.token_hex(8)
    store.set(_call(rank), own)
    while not store.check([_answer(own)]):
        yield Attendance(sum(store.check([_call(other)]) for other in range(1, size)), None)
    meeting = store.get(_answer(own)).decode()
    store.set(_came(meeting, rank), "")
    while not store.check([meeting]):
        yield Attendance(1 + sum(store.check([_came(meeting, other)]) for other in range(1, size)), None)
    yield Attendance(size, meeting)


def _call(rank: int) -> str:
    return f"rank {rank} calls"


def _answer(own: str) -> str:
    return f"answer to {own}"


def _came(meeting: str, rank: int) -> str:
    return f"rank {rank} came to {meeting}"


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
