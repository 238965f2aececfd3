"""Data and nothing else in, a whole configuration out, every choice with its reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from clearhead.config import Record, override, to_value
from clearhead.run.settings import DEFAULT_KIND, RunConfig, from_environment, resolve
from clearhead.run.tasks import TASKS
from clearhead.training.events import Reading
from clearhead.training.sizing import Choice


def choose_config(
    data: Record,
    out: str,
    assignments: Iterable[str] = (),
    progress: Callable[[Reading], None] | None = None,
    kind: str = DEFAULT_KIND,
) -> tuple[RunConfig, list[Choice], Any]:
    """Look at the data, choose what the user has not, and say why; what was found in the data comes along."""
    assignments, task = list(assignments), TASKS[kind]
    tree: dict[str, Any] = {
        "out": out,
        "data": data.model_dump(exclude_none=True),
        "model": {"kind": kind},
        "train": {"steps": 1},
    }
    wanted = resolve(tree, assignments)
    found = task.examine(wanted, progress)
    given = {assignment.partition("=")[0].strip() for assignment in [*from_environment(os.environ), *assignments]}
    choices = [choice for choice in task.choose(wanted, found, free_memory()) if choice.key not in given]
    tree["train"] = {}
    for choice in choices:
        tree = override(tree, [f"{choice.key}={to_value(choice.value)}"])
    return resolve(tree, assignments), choices, found


def free_memory() -> int:
    """Bytes of memory that could be used now."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
