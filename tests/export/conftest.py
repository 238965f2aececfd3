"""What tests of exports share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.shared.shapes import unchecked_shapes


@pytest.fixture(scope="module")
def unchecked_for_all() -> Iterator[None]:
    """Shapes are not checked: the exporter's have names for numbers."""
    with unchecked_shapes():
        yield
