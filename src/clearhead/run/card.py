"""What is known of a finished run in, its model card out."""

from __future__ import annotations

import re

from clearhead.models import Model
from clearhead.run.settings import RunConfig
from clearhead.run.tasks import TASKS
from clearhead.training.events import Finished
from clearhead.training.logbook import clock
from clearhead.version import VERSION

PARAMETERS, VALIDATION_LOSS = "parameters", "validation loss"


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
        PARAMETERS: _count(model),
        **about.rows,
        "training": f"{finished.step:,} steps, {clock(finished.seconds)}, ended: {finished.reason}",
        VALIDATION_LOSS: f"{loss:.4f} per {about.per} ({train.loss}, smoothing {train.smoothing})",
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


def altered_card(card: str, model: Model, what: str) -> str:
    """The card of a model that was made from the one of this card: its own size, and what was measured of whom."""
    for name, row in (
        (PARAMETERS, f"| {PARAMETERS} | {_count(model)} |"),
        (VALIDATION_LOSS, rf"| {VALIDATION_LOSS} of the model it was made from | \1 |"),
    ):
        card = re.sub(rf"(?m)^\| {name} \| (.*) \|$", row, card, count=1)
    remark = "Scores above are of the model it was made from. " if "\n## Scores\n" in card else ""
    return f"{card}\n{remark}{what}\n"


def _count(model: Model) -> str:
    return f"{sum(p.numel() for p in model.parameters()):,}"


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
