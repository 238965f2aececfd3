"""Schemathesis makes up requests from the documentation: every answer is one that the documentation promises.

CLEARHEAD_EXAMPLES says how many for each route, of those with a body half as documented and half not; `make fuzz` tries
a thousand.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis: pip install schemathesis")

EXAMPLES = int(os.environ.get("CLEARHEAD_EXAMPLES", "200"))
ROUTES = [
    ("POST", "/translate"), ("GET", "/languages"), ("POST", "/detect"), ("GET", "/frontend/settings"),
    ("POST", "/suggest"), ("POST", "/translate_file"), ("GET", "/v1/models"), ("GET", "/v1/models/{model}"),
    ("POST", "/v1/completions"), ("GET", "/models"), ("POST", "/classify"), ("POST", "/attention"), ("GET", "/health"),
    ("GET", "/livez"), ("GET", "/readyz"), ("GET", "/metrics"),
]  # fmt: skip


@pytest.fixture(scope="session")
def documented(address: str) -> Any:
    return schemathesis.openapi.from_url(f"{address}/openapi.json")


def test_all_routes_are_tried(documented: Any) -> None:
    assert {(method.upper(), path) for path in documented for method in documented[path]} == {*ROUTES}


POSITIVE, NEGATIVE = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
WITH_BODY = ("/translate", "/detect", "/v1/completions", "/classify", "/attention")
TRIED = [
    *((POSITIVE, *route) for route in ROUTES),
    *((NEGATIVE, "POST", path) for path in WITH_BODY),
]
STRICT = ("/v1/completions", "/classify", "/attention")
"""Routes that refuse whatever is not documented; LibreTranslate's take what they can make sense of."""


@pytest.mark.parametrize(("mode", "method", "path"), TRIED)
def test_every_answer_is_as_documented(documented: Any, mode: Any, method: str, path: str) -> None:
    operation = documented[path][method]
    checks = schemathesis.specs.openapi.checks
    # Whether a language is known, or a model there, is not in the documentation.
    excluded = [checks.positive_data_acceptance]
    if path not in STRICT:
        excluded.append(checks.negative_data_rejection)
    count = max(1, EXAMPLES // 2 if path in WITH_BODY else EXAMPLES)

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        case.call_and_validate(excluded_checks=excluded)

    check()
