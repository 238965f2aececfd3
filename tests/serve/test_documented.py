"""What docs/serve.md shows is true: its curl lines and its Python run as written, its bounds are the ones there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serve import made_up_models
from tests.serve.processes import Process, serving

from clearhead.serve.bounds import Bounds

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
EVERYWHERE = DOCUMENT + "".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md"))
LINES = list(dict.fromkeys(re.findall(r"(?m)^curl .+$", EVERYWHERE)))
BLOCKS = re.findall(r"(?ms)^```python\n(.+?)^```", DOCUMENT)


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


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split()[1])
def test_every_block_of_python_runs_as_written(server: Process, block: str) -> None:
    client = block.split()[1]
    pytest.importorskip(client, reason=f"needs {client}: pip install {client}")
    program = block.replace("http://localhost:8000", server.address)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_there_is_a_line_for_every_route() -> None:
    shown = {re.search(r"localhost:8000(/[\w/.]*)", line)[1] for line in LINES}  # type: ignore[index]
    assert {"/translate", "/languages", "/detect", "/v1/models", "/v1/completions", "/classify", "/attention"} <= shown


def test_there_is_a_block_for_every_client() -> None:
    assert [block.split()[1] for block in BLOCKS] == ["libretranslatepy", "openai"]


def test_the_bounds_are_the_ones_there_are() -> None:
    rows = re.findall(r"(?m)^\| (.+) \| ([\d,]+)\b.* \| (?:`--(\w+)`|–) \|$", DOCUMENT.split("## Bounds")[1])
    shown = {flag: number for _, number, flag in rows if flag}
    bounds = {name: f"{round(value):,}" for name, value in Bounds().model_dump().items()}
    assert {bounds[name] for name in ("stops", "tokens", "looks")} == {number for _, number, flag in rows if not flag}
    assert shown == {name: number for name, number in bounds.items() if name not in ("stops", "tokens", "looks")}
    assert bounds == {
        "body": "2,000,000", "characters": "5,000", "texts": "64", "results": "8", "stops": "4", "tokens": "1,024",
        "looks": "256", "queue": "64", "seconds": "60", "rate": "6,000", "drain": "20",
    }  # fmt: skip
