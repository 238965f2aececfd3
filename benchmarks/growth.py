"""What a training step takes as things grow, to RESULTS.md and docs/growth.png: `python benchmarks/growth.py`."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from results import record

from clearhead.bench import growth

PICTURE = Path(__file__).parents[1] / "docs" / "growth.png"


def main() -> None:
    """Measure, draw and write down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    found = growth.measure(quick=asked.quick, threads=asked.threads, told=print)
    growth.draw(found, PICTURE)
    command = f"python benchmarks/growth.py --threads {asked.threads}{' --quick' if asked.quick else ''}"
    record("Growth", command, growth.COLUMNS, [growth.row(one) for one in found], growth.remark(asked.threads))


if __name__ == "__main__":
    main()
