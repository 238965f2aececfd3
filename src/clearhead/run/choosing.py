"""Two text files and nothing else in, a whole configuration out, every choice with its reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from clearhead.config import override
from clearhead.data.sources import DataConfig
from clearhead.run.preparing import Examined, examine
from clearhead.run.settings import RunConfig, from_environment, resolve
from clearhead.training.events import Reading
from clearhead.training.sizing import Choice, choose_sizes


def choose_config(
    data: DataConfig,
    out: str,
    assignments: Iterable[str] = (),
    progress: Callable[[Reading], None] | None = None,
) -> tuple[RunConfig, list[Choice], Examined]:
    """Look at the data, choose what the user has not, and say why."""
    assignments = list(assignments)
    tree: dict[str, Any] = {"out": out, "data": data.model_dump(exclude_none=True), "train": {"steps": 1}}
    wanted = resolve(tree, assignments)
    examined = examine(wanted, progress)
    report = examined.checkup.report
    longest = max(report.source_lengths.longest, report.target_lengths.longest)
    choices = choose_sizes(report.kept, longest, free_memory())
    given = {assignment.partition("=")[0].strip() for assignment in [*from_environment(os.environ), *assignments]}
    if not wanted.tokenizer.joint:
        given.add("model.tie")
    choices = [choice for choice in choices if choice.key not in given]
    tree["train"] = {}
    for choice in choices:
        value = f'"{choice.value}"' if isinstance(choice.value, str) else str(choice.value)
        tree = override(tree, [f"{choice.key}={value}"])
    return resolve(tree, assignments), choices, examined


def free_memory() -> int:
    """Bytes of memory that could be used now."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
