"""What is known of a finished run in, its model card out."""

from __future__ import annotations

import re

from clearhead.models import Model
from clearhead.run.settings import RunConfig
from clearhead.run.tasks import TASKS
from clearhead.training.events import Finished
from clearhead.training.logbook import clock
from clearhead.version import VERSION


def model_card(config: RunConfig, model: Model, finished: Finished, loss: float, examples: int) -> str:
    """The README of a model directory, in the front-matter format that model hubs read."""
    about = TASKS[config.model.kind].about(config)
    train = config.train
    front = [
        "---",
        "library_name: clearhead",
        f"pipeline_tag: {about.pipeline_tag}",
        *(["language:", *(f"- {language}" for language in about.languages)] if about.languages else []),
        "---",
    ]
    rows = {
        "trained on": f"{examples:,} {about.unit} from {about.origin}",
        "licence of the data": about.licence or "not recorded: fill this in before you share it",
        "parameters": f"{sum(p.numel() for p in model.parameters()):,}",
        **about.rows,
        "training": f"{finished.step:,} steps, {clock(finished.seconds)}, ended: {finished.reason}",
        "validation loss": f"{loss:.4f} per {about.per} ({train.loss}, smoothing {train.smoothing})",
        "made by": f"clearhead {VERSION}: `clearhead train training_config.toml`",
    }
    return "\n".join(
        [
            *front,
            f"# {about.title}",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in rows.items()),
            "",
            "Use it:",
            "",
            "```",
            about.example,
            "```",
            "",
        ]
    )


def with_section(card: str, title: str, body: str) -> str:
    """A card with a section of this title: in the place of an earlier one, or at the end.

    >>> with_section("# A\\n\\n## B\\n\\nold\\n\\n## C\\n\\nc\\n", "B", "new")
    '# A\\n\\n## B\\n\\nnew\\n\\n## C\\n\\nc\\n'
    """
    section = f"## {title}\n\n{body}\n"
    parts = [part.rstrip("\n") + "\n" for part in re.split(r"(?m)^(?=## )", card)]
    places = [place for place, part in enumerate(parts) if part.startswith(f"## {title}\n")]
    if places:
        parts[places[0]] = section
    else:
        parts.append(section)
    return "\n".join(parts)
