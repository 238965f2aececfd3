"""What each kind of model needs of its data, and how it is shown and used: one file for each kind, and the table.

A new kind is one file with a subclass of `Task`, and one line in TASKS; docs/extending.md has the rest of the way.
"""

from __future__ import annotations

from typing import Any

from clearhead.run.task import Task
from clearhead.run.tasks.translator import TranslatorTask

TASKS: dict[str, Task[Any, Any, Any]] = {"translator": TranslatorTask()}
"""By the kind of model."""
