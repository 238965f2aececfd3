"""The name of a package in, nothing out, or one line that says how to get it."""

from __future__ import annotations

from importlib.util import find_spec

from clearhead.errors import UnavailableError


def needed(*packages: str) -> None:
    """Refuse to go on without these packages."""
    for package in packages:
        if find_spec(package) is None:
            raise UnavailableError(f"this needs {package}: pip install 'clearhead[export]'")
