"""What docs/serve.md shows is true: its curl lines run as written, its bounds are the ones there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serve import made_up_models
from tests.serve.processes import Process, serving

from clearhead.serve.bounds import Bounds

DOCUMENT = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")
LINES = re.findall(r"(?m)^curl .+$", DOCUMENT)


@pytest.fixture(scope="module")
def server(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    root = tmp_path_factory.mktemp("served")
    models = [made_up_models.gpt(root / "shakespeare"), made_up_models.classifier(root / "reviews")]
    with serving(trained, *models) as started:
        yield started


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("line", LINES)
def test_every_curl_line_runs_as_written(server: Process, line: str) -> None:
    # The port alone is another, because 8000 may be taken.
    command = line.replace("http://localhost:8000", server.address).replace("curl ", "curl -sS --fail-with-body ", 1)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    if "/metrics" in line:
        assert "clearhead_requests_total" in done.stdout
    elif '"stream": true' in line:
        assert done.stdout.rstrip().endswith("data: [DONE]")
    else:
        assert "error" not in json.loads(done.stdout)


def test_there_is_a_line_for_every_route() -> None:
    shown = {re.search(r"localhost:8000(/[\w/.]*)", line)[1] for line in LINES}  # type: ignore[index]
    assert {"/translate", "/languages", "/detect", "/v1/models", "/v1/completions", "/classify", "/attention"} <= shown


def test_the_bounds_are_the_ones_there_are() -> None:
    table = DOCUMENT.split("## Bounds")[1].split("\n\n**Keys")[0]
    bounds = Bounds()
    for name in Bounds.model_fields:
        number = round(getattr(bounds, name))
        assert re.search(rf"\| {number:,}\b", table), number
