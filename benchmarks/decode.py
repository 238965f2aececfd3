"""Decoding speed beside the peers, written to RESULTS.md: `python benchmarks/decode.py`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from results import record

from clearhead.bench.decoding import contest

TINY = ("model.ff_dim=256", "model.decoder_layers=4", "model.residual=post", "tokenizer.vocab_size=10000")
"""The shape that peers are compared in, which is post-norm as Marian is."""


def main() -> None:
    """Run one contest and write its figures down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a model directory; if none is given, one is trained first")
    parser.add_argument("--out", type=Path, default=Path("runs/decode-benchmark"), help="where that model is kept")
    parser.add_argument("--train-steps", type=int, default=1000, help="steps of that training")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    model = asked.model or trained(asked.out, asked.train_steps)
    figures = contest(model, sentences=asked.sentences, rounds=asked.rounds, threads=asked.threads, told=print)
    columns, rows = figures.table()
    record("Decoding", "python benchmarks/decode.py", columns, rows, figures.remark())
    for row in rows:
        print(*row, sep="  ")


def trained(out: Path, steps: int) -> Path:
    """A small model that has learnt where sentences end: an untrained one would never stop."""
    if not (out / "model").is_dir():
        command = [sys.executable, "-m", "clearhead", "train", "multi30k", "--out", str(out), "--processes", "2"]
        settings = (*TINY, f"train.steps={steps}", "train.optimizer=adam", "train.lr=3e-3", "model.dropout=0.1")
        subprocess.run([*command, *(word for setting in settings for word in ("--set", setting))], check=True)
    return out / "model"


if __name__ == "__main__":
    main()
