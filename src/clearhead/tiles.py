"""What the kernel says of the CPU in, an environment in which products of tiles cannot kill the process out.

Some virtual machines let AMX through but hide the leaf of CPUID that describes its tiles. oneDNN, which computes
torch's products in bf16, then sets no tiles up and dies of an illegal instruction.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

VARIABLE = "ONEDNN_MAX_CPU_ISA"
WITHOUT_TILES = "AVX512_CORE_FP16"
TILE_LEAF = 0x1D
CPUINFO = Path("/proc/cpuinfo")
FIRST_CPU = 16384
"""Bytes that hold all that is said of the first CPU; the others are like it."""


def are_hidden(cpuinfo: str) -> bool:
    """Whether this CPU has tiles that it does not describe.

    >>> are_hidden("cpuid level\\t: 28\\nflags\\t\\t: fpu amx_tile")
    True
    >>> are_hidden("cpuid level\\t: 32\\nflags\\t\\t: fpu amx_tile")
    False
    """
    facts = dict(reversed([_fact(line) for line in cpuinfo.splitlines() if ":" in line]))
    level = facts.get("cpuid level", "")
    return "amx_tile" in facts.get("flags", "").split() and level.isdecimal() and int(level) < TILE_LEAF


def _fact(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def leave_hidden_ones(environment: MutableMapping[str, str] = os.environ, cpuinfo: Path = CPUINFO) -> None:
    """Keep oneDNN away from tiles that are hidden, unless somebody has said how far it may go."""
    if VARIABLE in environment or not cpuinfo.exists():
        return
    with cpuinfo.open(encoding="utf-8", errors="replace") as lines:
        if are_hidden(lines.read(FIRST_CPU)):
            environment[VARIABLE] = WITHOUT_TILES


def were_left(environment: MutableMapping[str, str] = os.environ) -> bool:
    """Whether this process does without them."""
    return environment.get(VARIABLE) == WITHOUT_TILES
