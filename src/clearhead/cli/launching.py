"""The words of a command and a number in, that many processes of it on this machine out, and one exit code."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence

from clearhead.cli import show
from clearhead.errors import INTERRUPTED, TERMINATED

TIME_TO_SAVE = 600
"""Seconds that the processes of an interrupted run have for their last checkpoint."""


def launch(words: Sequence[str], processes: int) -> int:
    """Carry out one command with several processes, as torchrun would; Ctrl-C is passed on, and waited for."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from clearhead.training.distributed import free_port

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // processes)))
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(TIME_TO_SAVE))
    # What goes wrong is told in one line by the process in which it does.
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id="clearhead",
            # Unlike torchrun's own meeting point, this one unpickles nothing that comes over the network.
            rdzv_backend="static",
            rdzv_endpoint=f"127.0.0.1:{free_port()}",
            rdzv_configs={"rank": 0},
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=folder),
        )
        try:
            elastic_launch(config, sys.executable)("-m", "clearhead", *words)
        except ChildFailedError as error:
            return exit_code({rank: failure.exitcode for rank, failure in error.failures.items()})
        except SignalException as stopped:
            return TERMINATED if stopped.sigval == signal.SIGTERM else INTERRUPTED
    return 0


def exit_code(codes: Mapping[int, int]) -> int:
    """What several processes that failed come to: what the first of them says that could still speak.

    >>> exit_code({0: 69, 1: 73}), exit_code({0: 78, 1: -15})
    (69, 78)
    """
    spoken = [code for _, code in sorted(codes.items()) if code > 0]
    if spoken:
        return spoken[0]
    rank, code = min(codes.items())
    show.fail(f"process {rank} was killed by signal {-code}; go on with --resume")
    return 128 - code


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
