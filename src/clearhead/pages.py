"""An environment in, one in which torch asks for large pages out: fewer to be brought in, and fewer to look up.

Linux hands memory out by 4 kB unless asked for more, and each of these pages costs a fault when it is first touched:
10 µs in some virtual machines, where the first steps of a training touch hundreds of thousands.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

VARIABLE = "THP_MEM_ALLOC_ENABLE"
"""What torch asks once, when it first allocates: whether blocks of 2 MB and more are to lie on large pages."""
AS_TORCH_COMES = {VARIABLE: "0"}


def ask_for_large_ones(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let torch ask the kernel for them, unless somebody has said whether it may."""
    environment.setdefault(VARIABLE, "1")
