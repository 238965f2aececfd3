"""Events in, files out: `metrics.jsonl`, `train.log`, `samples.txt` and a picture of the loss, in the run directory."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple
from datetime import datetime
from pathlib import Path
from typing import Any

from clearhead.training.events import Event, Finished, Noted, Progress, Reading, Sample, Saved, Started, Validated


class Logbook:
    """Writes down what happens; lines of steps that a resumed run will take again are struck out first."""

    def __init__(self, run: Path, resumed_at: int = 0) -> None:
        self.run = run
        run.mkdir(parents=True, exist_ok=True)
        self.metrics = run / "metrics.jsonl"
        if self.metrics.exists():
            self._strike_out_after(resumed_at)

    def record(self, event: Event) -> None:
        """Append one event to every file it belongs in; how far reading has come is of no interest afterwards."""
        if isinstance(event, Reading):
            return
        _append(self.metrics, json.dumps(as_row(event), ensure_ascii=False))
        _append(self.run / "train.log", f"{datetime.now().isoformat(timespec='seconds')}  {sentence(event)}")
        if isinstance(event, Validated):
            for sample in event.samples:
                _append(self.run / "samples.txt", "\n".join((f"step {event.step}", *told(sample, event.heads), "")))
        if isinstance(event, Validated | Finished):
            draw_curve(self.metrics, self.run / "loss.png")

    def _strike_out_after(self, step: int) -> None:
        kept = [row for row in read_metrics(self.metrics) if row.get("step", 0) <= step]
        draft = self.metrics.with_suffix(".tmp")
        draft.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept), encoding="utf-8")
        draft.replace(self.metrics)


def as_row(event: Event) -> dict[str, Any]:
    """One event as one object of `metrics.jsonl`."""
    row: dict[str, Any] = {"event": type(event).__name__.lower(), **asdict(event)}
    if isinstance(event, Validated):
        row["samples"] = [dict(zip(event.heads, astuple(sample), strict=True)) for sample in event.samples]
        del row["heads"]
    if isinstance(event, Progress | Validated):
        row = {key: value for key, value in row.items() if value is not None}
    return {key: str(value) if isinstance(value, Path) else value for key, value in row.items()}


def told(sample: Sample, heads: tuple[str, str, str]) -> list[str]:
    """A sample as three lines for people.

    >>> told(Sample("It was dull.", "neg", "pos"), ("text", "label", "said"))
    ['  text   It was dull.', '  label  neg', '  said   pos']
    """
    width = max(map(len, heads))
    return [f"  {head:<{width}}  {text}" for head, text in zip(heads, astuple(sample), strict=True)]


def sentence(event: Event) -> str:
    """One event as one line of plain text."""
    match event:
        case Noted():
            return event.message
        case Reading():
            total = "" if event.total_pairs is None else f" of {event.total_pairs:,}"
            left = "" if event.seconds_left is None else f"  eta {clock(event.seconds_left)}"
            pace = f"{short(event.pairs_per_second)} {event.unit}/s"
            return f"{event.what} {event.pairs:,}{total} {event.unit}  {pace}{left}"
        case Started():
            begin = f"resuming at step {event.step}" if event.step else "starting"
            size = f"{event.parameters / 1e6:.2f} M parameters"
            team = f", {event.processes} processes" if event.processes > 1 else ""
            return f"{begin}: {event.total_steps} steps, {size}, on {event.device} in {event.precision}{team}"
        case Progress():
            return (
                f"step {event.step}/{event.total_steps}  loss {event.loss:.3f}{_worth(event, 1)}  "
                f"lr {power_of_ten(event.lr)}  gnorm {event.grad_norm:.2f}  {short(event.tokens_per_second)} "
                f"{event.unit}/s  eta {clock(event.seconds_left)}"
            )
        case Validated():
            best = "  best so far" if event.is_best else ""
            return f"validation at step {event.step}: loss {event.loss:.3f}{_worth(event, 2)}{best}"
        case Saved():
            return f"saved {event.path}"
        case Finished():
            best = "" if event.best_loss is None else f"; best loss {event.best_loss:.3f} at step {event.best_step}"
            return f"{event.reason} at step {event.step} after {clock(event.seconds)}{best}"


def _worth(event: Progress | Validated, digits: int) -> str:
    """What people judge a model by beside its loss."""
    hesitates = "" if event.perplexity is None else f"  ppl {event.perplexity:.{digits}f}"
    right = "" if event.accuracy is None else f"  accuracy {100 * event.accuracy:.1f} %"
    return hesitates + right


def short(number: float) -> str:
    """A count in three figures or so.

    >>> short(18_437), short(950), short(2_500_000)
    ('18.4k', '950', '2.5M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        # What would be rounded up to the next size belongs there.
        if number >= 0.99995 * size:
            return f"{number / size:.1f}{letter}"
    return f"{number:.0f}"


def power_of_ten(number: float) -> str:
    """A small number as people write it.

    >>> power_of_ten(4.2e-4), power_of_ten(0.0)
    ('4.2e-4', '0.0e+0')
    """
    mantissa, exponent = f"{number:.1e}".split("e")
    return f"{mantissa}e{int(exponent):+d}"


def clock(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    >>> clock(751)
    '0:12:31'
    """
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a metrics file; a line cut off by a kill is passed over."""
    rows = []
    for line in path.read_bytes().split(b"\n"):
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def draw_curve(metrics: Path, picture: Path) -> None:
    """Draw training and validation loss against steps."""
    from matplotlib.figure import Figure

    rows = read_metrics(metrics)
    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.subplots()
    for name, label, marker in (("progress", "training", ""), ("validated", "validation", "o")):
        points = [(row["step"], row["loss"]) for row in rows if row["event"] == name]
        if points:
            axes.plot(*zip(*points, strict=True), label=label, marker=marker)
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend()
    draft = picture.with_suffix(".tmp.png")
    figure.savefig(draft)
    draft.replace(picture)


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(line + "\n")
