"""Time the page of a long input in headless Chromium: `python benchmarks/page.py`.

200 × 200 tokens, 6 layers of 8 heads, three kinds of attention, opened from a file in a fresh browser; the middle one
of five rounds. Opening ends when the browser has drawn the first frame; so does switching, counted from the click.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from results import record

from clearhead.inspection.page import write_page

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.inspection.made_up_views import big_view

ROUNDS = 5
# Two frames: the first callback runs before the browser draws, the second after it has.
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"
SWITCH = """key => new Promise((done) => {
  const began = performance.now();
  document.querySelector(`[data-key="${key}"]`).click();
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
})"""


def one_round(chromium: Any, address: str) -> dict[str, float]:
    """Milliseconds of one opening and a few switches, in a browser of its own."""
    browser = chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    times = {}
    for view in ("sentence", "map", "gallery"):
        page.goto("about:blank")
        page.goto(f"{address}#view={view}&heads=0.0")
        times[f"open the {view} view"] = page.evaluate(DRAWN)
    page.goto("about:blank")
    page.goto(f"{address}#view=map&heads=0.0")
    page.evaluate(DRAWN)
    times["switch heads in the map"] = max(page.evaluate(SWITCH, f"pick-{layer},3") for layer in range(1, 6))
    times["the mean of all 48 heads in the map"] = page.evaluate(SWITCH, "pick--1,-1")
    times["another kind in the map"] = page.evaluate(SWITCH, "kind-encoder")
    page.evaluate(SWITCH, "tab-sentence")
    times["switch heads in the sentence"] = max(page.evaluate(SWITCH, f"pick-{layer},3") for layer in range(1, 6))
    browser.close()
    return times


def main() -> None:
    """Write the page, time it, and write the figures down."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "page.html"
        write_page(path, big_view())
        rounds = [one_round(playwright.chromium, path.as_uri()) for _ in range(ROUNDS)]
        size = path.stat().st_size
    rows = [(name, f"{statistics.median(times[name] for times in rounds):.0f} ms") for name in rounds[0]]
    rows.insert(0, ("size of the file", f"{size / 1e6:.1f} MB"))
    record("The page of a long input", "python benchmarks/page.py", ("what", "figure"), rows)
    for name, figure in rows:
        print(f"{name}: {figure}")


if __name__ == "__main__":
    main()
