"""Processes that torchrun has started in, one team that trains one model out; a process alone is a team of one."""

from clearhead.training.distributed.joining import TIMEOUT_VARIABLE, find_place, free_port, join
from clearhead.training.distributed.sharing import SHARDINGS, Lesson, Replicated, Sharded, Sharing, share_out
from clearhead.training.distributed.team import SOLO, Team, is_sharded, whole

__all__ = [
    "SHARDINGS",
    "SOLO",
    "TIMEOUT_VARIABLE",
    "Lesson",
    "Replicated",
    "Sharded",
    "Sharing",
    "Team",
    "find_place",
    "free_port",
    "is_sharded",
    "join",
    "share_out",
    "whole",
]
