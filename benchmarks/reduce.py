"""What fewer tokens give, to RESULTS.md and a picture: `python benchmarks/reduce.py runs/x --merge 8 16`."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from results import record

from clearhead.bench import reduction
from clearhead.run.trying import to_try

DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Measure a model with each value, draw it and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--merge", type=float, nargs="*", default=[])
    parser.add_argument("--r-last", type=int)
    parser.add_argument("--prune", type=float, nargs="*", default=[])
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--timed", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    kind = "merge" if asked.merge else "prune"
    model, batches, has_learnt = to_try(asked.model, asked.split, asked.limit)
    count = sum(batch.num_answers for batch in batches)
    found = reduction.measure(
        model,
        batches,
        reduction.ways(kind, asked.merge or asked.prune, learnt=has_learnt, r_last=asked.r_last),
        rounds=asked.rounds,
        timed=max(1, round(len(batches) * min(1.0, asked.timed / count))),
        told=print,
    )
    name = asked.model.resolve().name
    reduction.draw(found, DOCS / f"{kind}-{name}.png", f"{name}: {count:,} examples")
    values = " ".join(f"{value:g}" for value in asked.merge or asked.prune)
    values += "" if asked.r_last is None else f" --r-last {asked.r_last}"
    values += "" if asked.limit is None else f" --limit {asked.limit}"
    command = f"python benchmarks/reduce.py {asked.model} --{kind} {values} --threads {asked.threads}"
    rows = [reduction.row(one) for one in found]
    record(f"Fewer tokens: {kind}, {name}", command, reduction.COLUMNS, rows, reduction.remark(found, asked.threads))


if __name__ == "__main__":
    main()
