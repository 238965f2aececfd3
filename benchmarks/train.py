"""Training speed beside the peers, written to RESULTS.md: `python benchmarks/train.py --size tiny --seconds 300`."""

from __future__ import annotations

import argparse
import os
import shlex

from results import record

from clearhead.bench.sizes import SIZES
from clearhead.bench.training import contest


def main() -> None:
    """Run one contest and write its figures down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="those who take part, where memory is short")
    asked = parser.parse_args()
    figures = contest(asked.size, seconds=asked.seconds, threads=asked.threads, names=asked.only, told=print)
    columns, rows = figures.table()
    command = f"python benchmarks/train.py --size {asked.size} --seconds {asked.seconds:g} --threads {figures.threads}"
    if asked.only:
        command += f" --only {shlex.join(asked.only)}"
    # On their own beside those of other CPUs: nothing computes as quickly as tiles, and peers are nearer without bf16.
    kind = ", with tiles" if "tiles" in os.environ.get("LD_PRELOAD", "") else ""
    kind = kind if "bf16" in figures.matrix_gflops else ", without bf16"
    record(f"Training, {asked.size}{kind}", command, columns, rows, figures.remark())
    for row in rows:
        print(*row, sep="  ")


if __name__ == "__main__":
    main()
