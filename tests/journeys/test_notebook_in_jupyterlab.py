"""The view in a real JupyterLab: shown in the cell, changed from Python, and there again in the saved notebook.

JupyterLab (100 MB) is not among the development packages but in the extra `jupyter`, which CI installs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.shared.chromium import launched, needs_chromium

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
LAB = shutil.which("jupyter-lab", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
pytestmark = [
    needs_chromium,
    pytest.mark.skipif(LAB is None, reason="needs JupyterLab: pip install 'clearhead[jupyter]'"),
]
ROOT = Path(__file__).parents[2]
CELLS = [
    "from tests.inspection.made_up_views import language_model_view, small_view\n"
    "from clearhead.inspection.widget import inspection_widget\n"
    "shown = inspection_widget(small_view())\n"
    "shown",
    "shown.view = language_model_view()",
]


def notebook() -> dict[str, Any]:
    cells = [
        {
            "cell_type": "code",
            "id": f"cell-{place}",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": text,
        }
        for place, text in enumerate(CELLS)
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """A server on a free port of this machine; its address comes back."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    (folder / "look.ipynb").write_text(json.dumps(notebook()), encoding="utf-8")
    own = {
        name: str(tmp_path / name.lower()) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    paths = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "IPYTHONDIR": str(tmp_path / "ipython")}
    flags = [
        "--no-browser",
        "--ip=127.0.0.1",
        "--port=0",
        "--allow-root",
        "--IdentityProvider.token=",
        f"--ServerApp.root_dir={folder}",
    ]
    quiet = [
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",
    ]
    with (tmp_path / "lab.log").open("w") as log:
        server = subprocess.Popen(
            [str(LAB), *flags, *quiet], env={**os.environ, **own, **paths}, stdout=log, stderr=log
        )
    try:
        yield address(tmp_path / "lab.log")
    finally:
        server.terminate()
        server.wait(30)


def address(log: Path) -> str:
    """Where the server listens, once it answers: it tells its address before that, and the log may be half written."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        for found in re.findall(r"(http://127\.0\.0\.1:\d+)/", log.read_text(encoding="utf-8")):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{found}/api", timeout=60) as answer:
                assert answer.status == 200
                return str(found)
        time.sleep(0.2)
    raise AssertionError(log.read_text(encoding="utf-8"))


def test_a_cell_shows_the_view_and_the_saved_notebook_keeps_it(lab: str, tmp_path: Path) -> None:
    wrong: list[str] = []
    with launched(playwright) as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 1000}, locale="en-GB")
        page.set_default_timeout(90_000)
        page.on(
            "request",
            lambda request: (
                "127.0.0.1" in request.url or request.url.startswith(("data:", "blob:")) or wrong.append(request.url)
            ),
        )
        page.goto(f"{lab}/lab/tree/look.ipynb")
        # Before the kernel is ready, running a cell does nothing.
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
        page.locator(".jp-CodeCell .cm-content").first.click()
        page.keyboard.press("Shift+Enter")
        page.locator(".jp-OutputArea .clearhead .token").first.wait_for()
        assert page.locator(".clearhead .token").count() == 25
        page.locator('.clearhead [data-key="tab-map"]').click()
        page.locator(".clearhead .map").wait_for()
        page.locator(".jp-CodeCell .cm-content").nth(1).click()
        page.keyboard.press("Shift+Enter")
        page.locator(".clearhead .warning", has_text="decoder.1.attention.2").wait_for()
        page.keyboard.press("Control+s")
        saved = tmp_path / "notebooks" / "look.ipynb"
        outputs: list[Any] = []
        for _ in range(600):
            # While it is being written the file may be empty, or half there.
            with contextlib.suppress(json.JSONDecodeError):
                outputs = json.loads(saved.read_text(encoding="utf-8"))["cells"][0]["outputs"]
            if outputs:
                break
            page.wait_for_timeout(100)
        kept = "".join(outputs[0]["data"]["text/html"])
        page.set_content(f"<p>the notebook, without a kernel</p>{kept}")
        frame = page.frame_locator("iframe")
        frame.get_by_role("tab", name="Gallery").click()
        frame.locator(".thumb[data-drawn]").first.wait_for()
        assert frame.locator(".thumb").count() == 12
    assert wrong == []
