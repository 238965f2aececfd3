"""Time the demo from start to end, and count the unseen numbers it gets exactly right: `python benchmarks/demo.py`."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time

from results import record


def main() -> None:
    """Run the demo in a fresh folder and write its figures down."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        command = [sys.executable, "-m", "clearhead", "demo", "--out", f"{folder}/demo"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds = time.perf_counter() - began
    right = re.search(r"([\d,]+) of ([\d,]+) numbers it never saw are exactly right", done.stderr)
    trained = re.search(r"done at step (\d+) after (\S+);", done.stderr)
    size = re.search(r"model: (\S+) M parameters", done.stderr)
    assert right and trained and size, done.stderr
    record(
        "The demo",
        "python benchmarks/demo.py",
        ("what", "figure"),
        [
            ("unseen German number words turned into exactly right English", f"{right[1]} of {right[2]}"),
            ("from start to end, without the install", f"{seconds:.0f} s"),
            ("of which training", f"{trained[2]} for {trained[1]} steps"),
            ("parameters", f"{size[1]} M"),
        ],
    )
    print(done.stderr)


if __name__ == "__main__":
    main()
