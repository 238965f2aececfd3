"""Train a recipe, score it, and draw its score against minutes: `python benchmarks/quality.py multi30k`.

The run is kept in the recipe's own folder: where it is finished already, it is only scored again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from results import RESULTS, record

from clearhead.checkpoint import all_steps, read_tensors, restore_model
from clearhead.evaluate import score
from clearhead.protocols import PROTOCOLS, score_like
from clearhead.run.scoring import pairs_to_score
from clearhead.run.translating import LoadedTranslator
from clearhead.run.using import load


@dataclass(frozen=True)
class Point:
    """One checkpoint of a run, scored."""

    minutes: float
    loss: float
    greedy: float
    beam: float


def main() -> None:
    """Train unless it is done, then score."""
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("recipe")
    reading.add_argument("--out", type=Path, help="the run directory (default: runs/RECIPE)")
    reading.add_argument("--processes", type=int, default=2, help="how many one-thread processes train")
    reading.add_argument("--beam", type=int, default=5)
    asked = reading.parse_args()
    run = asked.out or Path("runs") / asked.recipe
    if not (run / "model").is_dir():
        command = ["train", asked.recipe, "--out", str(run), "--processes", str(asked.processes)]
        more = ["--resume"] if (run / "config.toml").is_file() else []
        subprocess.run([sys.executable, "-m", "clearhead", *command, *more], check=True)
    pairs, language = pairs_to_score(run, None, None, None, "test", None)
    sources, references = [pair.source for pair in pairs], [pair.reference for pair in pairs]
    translator = load(run / "model")
    found, greedy = (translator.translate(sources, beam_size=size) for size in (asked.beam, 1))
    points = curve(run, translator, sources, references, asked.beam)
    draw(points, RESULTS.parent.parent / "docs" / f"curve-{asked.recipe}.png", asked.recipe, asked.beam)
    scores = score(found, references, target_language=language)
    parameters = sum(p.numel() for p in translator.model.parameters())
    assert scores.bleu_interval is not None
    assert scores.chrf_interval is not None
    rows = [
        ("minutes of training", f"{points[-1].minutes:.1f}"),
        ("parameters", f"{parameters / 1e6:.2f} M"),
        ("validation loss", f"{min(point.loss for point in points):.4f}"),
        (f"BLEU, beam {asked.beam}", f"{scores.bleu:.2f} ({_between(scores.bleu_interval)})"),
        ("BLEU, greedy", f"{score(greedy, references, target_language=language, resamples=0).bleu:.2f}"),
        ("chrF", f"{scores.chrf:.2f} ({_between(scores.chrf_interval)})"),
    ]
    for protocol in PROTOCOLS:
        like = score_like(protocol, found, references, target_language=language)
        rows.append((f"BLEU like {protocol} (`{like.signature}`)".replace("|", " "), f"{like.bleu:.2f}"))
    by_minute = ", ".join(f"{point.minutes:.1f} min {point.beam:.1f}" for point in points)
    remark = f"`{scores.bleu_signature}`. Against time: {by_minute}; drawn in `docs/curve-{asked.recipe}.png`."
    record(f"Quality: {asked.recipe}", f"python benchmarks/quality.py {asked.recipe}", ("what", "figure"), rows, remark)


def _between(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.2f} to {interval[1]:.2f}"


def curve(run: Path, translator: LoadedTranslator, sources: list[str], references: list[str], beam: int) -> list[Point]:
    """The scores of every checkpoint that was kept and validated: what an interruption left is passed over."""
    final = {name: tensor.clone() for name, tensor in translator.model.state_dict().items()}
    points = []
    for path in all_steps(run / "checkpoints"):
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        if state["validation_loss"] is None:
            continue
        restore_model(translator.model, read_tensors(path / "model.safetensors"), path)
        bleus = [
            score(translator.translate(sources, beam_size=size), references, resamples=0).bleu for size in (1, beam)
        ]
        points.append(Point(state["seconds"] / 60, state["validation_loss"], *bleus))
        print(points[-1], file=sys.stderr)
    translator.model.load_state_dict(final)
    return points


def draw(points: list[Point], path: Path, recipe: str, beam: int) -> None:
    """BLEU against minutes."""
    figure, axes = plt.subplots(figsize=(6.4, 4))
    minutes = [point.minutes for point in points]
    axes.plot(minutes, [point.beam for point in points], "o-", color="#0072B2", label=f"beam {beam}")
    axes.plot(minutes, [point.greedy for point in points], "s--", color="#D55E00", label="greedy")
    axes.set(xlabel="minutes of training", ylabel="cased sacreBLEU (13a), test", title=recipe)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
