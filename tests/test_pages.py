"""Large pages are asked for, and only where nobody has said otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from clearhead import pages


@pytest.mark.parametrize(("before", "after"), [({}, "1"), ({pages.VARIABLE: "0"}, "0"), (pages.AS_TORCH_COMES, "0")])
def test_what_somebody_has_said_of_pages_is_kept(before: dict[str, str], after: str) -> None:
    environment = dict(before)
    pages.ask_for_large_ones(environment)
    assert environment == {pages.VARIABLE: after}


def test_whoever_imports_the_package_has_asked_before_torch_is_there() -> None:
    code = "import clearhead, os, sys; print(os.environ[clearhead.pages.VARIABLE], 'torch' in sys.modules)"
    environment = {name: value for name, value in os.environ.items() if name != pages.VARIABLE}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["1", "False"]
