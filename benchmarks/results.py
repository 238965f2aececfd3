"""A benchmark's figures in, its section of RESULTS.md out, with command, hardware, commit and date."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from clearhead import tiles

RESULTS = Path(__file__).with_name("RESULTS.md")
SAID = ("LD_PRELOAD", "ONEDNN_MAX_CPU_ISA")
"""Variables of the environment that decide how products are computed: they belong to a command."""
TITLE = """# Results

Each section is written by the command it names; run it again to replace the figures. `/tmp/tiles.so`
in a command is made from `benchmarks/tiles.c`, whose first lines say how and what for.
"""


def record(
    title: str, command: str, columns: Sequence[str], rows: Sequence[Sequence[object]], remark: str = ""
) -> None:
    """Replace or append one section of RESULTS.md."""
    said = [f"{name}={os.environ[name]}" for name in SAID if name in os.environ and not tiles.were_left()]
    command = " ".join([*said, command])
    lines = [
        f"## {title}",
        "",
        f"`{command}` · {hardware()} · commit {commit()} · {date.today().isoformat()}",
        "",
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
        *(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows),
        *(["", remark] if remark else []),
        "",
    ]
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else TITLE
    sections = re.split(r"(?m)^(?=## )", text)
    kept = [section.rstrip() + "\n" for section in sections if not section.startswith(f"## {title}\n")]
    RESULTS.write_text("\n".join([*kept, "\n".join(lines)]), encoding="utf-8")


def hardware() -> str:
    """The processor, how many cores of it, its vector units as torch sees them, and the memory."""
    import torch

    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text(encoding="utf-8"))
        model = found.group(1) if found else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    capability = torch.backends.cpu.get_cpu_capability()
    if torch.cpu._is_amx_tile_supported() and not tiles.were_left():
        capability += " and AMX"
    return f"{os.cpu_count()} × {model} ({capability}), {memory:.0f} GiB, torch {torch.__version__}"


def commit() -> str:
    """The commit that was measured, marked if the work tree differs from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")
