"""Memory that is kept is not paged in again, and a user's own settings are left alone."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from clearhead.training.allocator import OWN_SETTINGS

SCRIPT = """
import resource, sys
import numpy as np
from clearhead.training.allocator import keep_memory
told = keep_memory() if sys.argv[1] == "keep" else False
def work():
    return [np.ones(2**20) for _ in range(8)]
work()
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    work()
print(int(told), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

only_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator can be told")


def pages(way: str, **environment: str) -> tuple[bool, int]:
    """Whether the allocator was told, and how many pages five rounds of work had to fetch."""
    clean = {name: value for name, value in os.environ.items() if name not in OWN_SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, way], env={**clean, **environment}, capture_output=True, text=True, check=True
    )
    told, faults = done.stdout.split()
    return told == "1", int(faults)


@only_glibc
def test_memory_that_was_used_once_is_not_fetched_again() -> None:
    (told, kept), (_, returned) = pages("keep"), pages("leave")
    assert told
    assert kept < returned / 10


@only_glibc
def test_a_users_own_settings_are_left_alone() -> None:
    told, _ = pages("keep", MALLOC_TRIM_THRESHOLD_="100000")
    assert not told
