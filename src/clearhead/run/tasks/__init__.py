"""What each kind of model needs of its data, and how it is shown and used: one file for each kind, and the table.

A new kind is one file with a subclass of `Task`, and one line in TASKS; docs/extending.md has the rest of the way.
"""

from __future__ import annotations

from typing import Any

from clearhead.run.task import Task
from clearhead.run.tasks.bert import BertTask
from clearhead.run.tasks.classifier import ClassifierTask
from clearhead.run.tasks.gpt import GptTask
from clearhead.run.tasks.translator import TranslatorTask
from clearhead.run.tasks.vit import VitTask

TASKS: dict[str, Task[Any, Any, Any]] = {
    "translator": TranslatorTask(),
    "classifier": ClassifierTask(),
    "bert": BertTask(),
    "gpt": GptTask(),
    "vit": VitTask(),
}
"""By the kind of model."""
