"""Train a recipe that is no translator, write what it reached to RESULTS.md: `python benchmarks/family.py shakespeare`.

The run is kept in its folder: one that was cut short is resumed, one that is finished is only scored again.
Classifiers are scored on their test set, language models and BERTs on what was held out of their texts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from results import record

from clearhead.checkpoint import all_steps, read_tensors
from clearhead.config import read_toml

Row = tuple[str, str]


def main() -> None:
    """Train unless it is done, then score."""
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("recipe")
    reading.add_argument("--out", type=Path, help="the run directory (default: runs/RECIPE)")
    reading.add_argument("--processes", type=int, default=2, help="how many one-thread processes train")
    asked = reading.parse_args()
    run = asked.out or Path("runs") / asked.recipe
    if not (run / "model").is_dir():
        more = ["--resume"] if (run / "config.toml").is_file() else []
        clearhead("train", asked.recipe, "--out", str(run), "--processes", str(asked.processes), *more)
    kind = json.loads((run / "model" / "config.json").read_text(encoding="utf-8"))["kind"]
    split = "validation" if kind in ("gpt", "bert") else "test"
    alone = ["--no-baseline"] if kind == "classifier" else []
    scored = json.loads(clearhead("score", "--model", str(run), "--split", split, "--json", *alone))
    command = f"python benchmarks/family.py {asked.recipe} --processes {asked.processes}"
    found = language(run, scored) if kind == "gpt" else words(scored) if kind == "bert" else classes(scored)
    rows = [*trained(run), *found]
    record(f"Recipe: {asked.recipe}", command, ("what", "figure"), rows)
    for row in rows:
        print(*row, sep="  ")


def clearhead(*words: str) -> str:
    """A command of ours: its progress goes to the terminal, what it answers comes back."""
    command = [sys.executable, "-m", "clearhead", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def trained(run: Path) -> list[Row]:
    """How large the model is, and how long it was trained."""
    tensors = read_tensors(run / "model" / "model.safetensors")
    last = max(states(run), key=lambda state: state["step"])
    speed, unit = pace(run)
    return [
        ("parameters", f"{sum(tensor.numel() for tensor in tensors.values()) / 1e6:.3f} M"),
        ("seed", str(read_toml(run / "config.toml")["train"]["seed"])),
        ("seconds of training, validations included", f"{last['seconds']:.0f}"),
        ("steps", f"{last['step']:,}"),
        (f"{unit}/s while training (median)", f"{speed:,.0f}"),
    ]


def states(run: Path) -> list[dict[str, Any]]:
    """What each kept checkpoint says of the run so far."""
    return [json.loads((step / "state.json").read_text(encoding="utf-8")) for step in all_steps(run / "checkpoints")]


def pace(run: Path) -> tuple[float, str]:
    """The speed of training, validations left out, and what it counts."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    told = [event for event in map(json.loads, lines) if event["event"] == "progress"]
    return median(event["tokens_per_second"] for event in told), told[-1]["unit"]


def language(run: Path, scored: dict[str, Any]) -> list[Row]:
    """What a language model's score says; its steps are all of a size."""
    config = read_toml(run / "config.toml")
    size, longest = config["batches"].get("batch_size"), config["model"]["max_len"]
    tokens = config["batches"]["max_tokens"] if size is None else size * longest
    return [
        ("milliseconds a step of that many characters", f"{1000 * tokens / pace(run)[0]:.1f} ({tokens:,})"),
        ("validation loss, every character once", f"{scored['loss']:.4f} ± {scored['loss_error']:.4f}"),
        ("perplexity", f"{scored['perplexity']:.3f}"),
    ]


def words(scored: dict[str, Any]) -> list[Row]:
    """What a BERT's score says of hidden words."""
    low, high = (100 * end for end in scored["accuracy_interval"])
    return [
        ("hidden words named, validation", f"{100 * scored['accuracy']:.2f} % ({low:.2f} to {high:.2f})"),
        ("validation loss, nats a hidden word", f"{scored['loss']:.4f}"),
        ("perplexity", f"{scored['perplexity']:.2f}"),
    ]


def classes(scored: dict[str, Any]) -> list[Row]:
    """What a classifier's score says."""
    low, high = (100 * end for end in scored["accuracy_interval"])
    return [
        ("accuracy, test", f"{100 * scored['accuracy']:.2f} % ({low:.2f} to {high:.2f})"),
        ("macro F1", f"{100 * scored['macro_f1']:.2f} %"),
        ("calibration error", f"{100 * scored['calibration_error']:.2f} %"),
    ]


if __name__ == "__main__":
    main()
