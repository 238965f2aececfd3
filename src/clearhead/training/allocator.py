"""Nothing in, nothing out: freed memory stays with the process, so that the next step need not ask for it again."""

from __future__ import annotations

import ctypes
import os
import platform

# The names are those of mallopt(3); the numbers are fixed in glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_MMAP_THRESHOLD = 32 * 2**20
"""More than this glibc refuses."""
OWN_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Where a user has set one of these, nothing is changed."""


def keep_memory() -> bool:
    """Tell glibc to give freed blocks back only at the end; whether it was told comes back.

    Without it every training step returns its activations to the system and has them paged in anew.
    """
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in OWN_SETTINGS):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
