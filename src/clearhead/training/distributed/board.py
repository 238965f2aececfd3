"""Memory that the processes of one host share in, tensors added up over them out, with no socket in between.

Every process writes its part where all can read it, waits for the others, and adds up what is there: in the same order
for all of them, so that they come to the same bits.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from clearhead.errors import ConfigError

VARIABLE = "CLEARHEAD_SHARED_MEMORY"
"""Set to 0 where processes of one host are to exchange everything through sockets."""
FOLDER = Path("/dev/shm")
"""Where Linux keeps files that are memory alone."""
MOST_PROCESSES = 4
"""Everybody reads what all have written: with more of them, each would read too much."""
PIECE_BYTES = 2**22
"""How much of a tensor each process writes at a time: more of it would not stay in the caches."""
LEAST_BYTES = 2**15
"""Tensors smaller than this go through sockets faster than anybody could wait twice."""
TURNS = 2
"""Who is ahead writes here while others still read there."""

Wait = Callable[[], None]
"""Comes back when all processes have called it."""


class Board:
    """One process's view of the memory."""

    def __init__(self, rank: int, size: int, memory: Tensor, wait: Wait) -> None:
        self._rank, self._wait = rank, wait
        self._places = memory.view(TURNS, size, -1)
        self._turn = 0

    def suits(self, tensor: Tensor) -> bool:
        """Whether this way is the faster one."""
        fits = tensor.device.type == "cpu" and tensor.is_contiguous() and tensor.is_floating_point()
        return fits and tensor.nbytes >= LEAST_BYTES

    def add_up(self, tensor: Tensor, parts: int = 1) -> None:
        """Let a tensor be the sum of everybody's, each divided by `parts`; all must ask, with tensors of one shape."""
        for piece in tensor.view(-1).split(PIECE_BYTES // tensor.itemsize):
            places = self._places[self._turn].view(tensor.dtype)[:, : len(piece)]
            self._turn = (self._turn + 1) % TURNS
            torch.div(piece, parts, out=places[self._rank])
            self._wait()
            torch.add(places[0], places[1], out=piece)
            for place in places[2:]:
                piece += place


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether processes of one host may exchange through memory."""
    wish = environment.get(VARIABLE, "1")
    if wish not in ("0", "1"):
        raise ConfigError(f"{VARIABLE} should be 0 or 1, not '{wish}'")
    return wish == "1"


def put_up(size: int) -> Path | None:
    """A file of memory for so many processes; none where there can be none."""
    if size > MOST_PROCESSES or not FOLDER.is_dir():
        return None
    path = FOLDER / f"clearhead-{secrets.token_hex(8)}"
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        # All of it at once: in a container there may be less than it says, and whoever writes beyond that is killed.
        os.posix_fallocate(file, 0, TURNS * size * PIECE_BYTES)
    except OSError:
        path.unlink()
        return None
    finally:
        os.close(file)
    return path


def looked_at(path: Path, size: int) -> Tensor | None:
    """The memory in such a file; none where it cannot be had, as on another host."""
    length = TURNS * size * PIECE_BYTES
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        facts = os.fstat(file)
        if facts.st_uid != os.geteuid() or facts.st_size != length:
            return None
        return torch.frombuffer(mmap.mmap(file, length), dtype=torch.uint8)
    except OSError:
        return None
    finally:
        os.close(file)
