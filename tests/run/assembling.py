"""A configuration in, a run that is ready to start out: for tests that look at its parts."""

from __future__ import annotations

from clearhead.run.assembling import Assembled, assemble
from clearhead.run.settings import RunConfig
from clearhead.run.tasks import TASKS


def assembled(config: RunConfig) -> Assembled:
    task = TASKS[config.model.kind]
    steps = task.prepare(config, task.examine(config))
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return assemble(config, end.value)
