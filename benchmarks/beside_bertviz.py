"""Our page beside bertviz, in headless Chromium: `python benchmarks/beside_bertviz.py MODEL "a text" --scripts FOLDER`.

First the same sentence with the same tensors, as `inspect --tensors` hands them over; then longer and longer made-up
inputs of 6 layers and 8 heads, until one side takes too long. bertviz loads three scripts from a server on the
network: FOLDER holds copies of them (require.min.js, d3.min.js, jquery.min.js), so that the network costs it nothing.
It needs bertviz (`pip install --no-deps bertviz`), which is no part of our development packages.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import bertviz
import torch
from page import DRAWN, SWITCH
from playwright.sync_api import sync_playwright
from results import record
from safetensors import safe_open

import clearhead
from clearhead.inspection.page import write_page

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.inspection.made_up_views import big_view

LENGTHS = (25, 50, 100, 200, 400)
LAYERS, HEADS = 6, 8
ROUNDS = 3
TOO_LONG = 20_000
"""Milliseconds after which an opening counts as failed ..."""
LONG = 10_000
"""... and after which nothing longer is tried."""
AT_ONCE = 100
"""Milliseconds up to which a change seems to follow at once."""
CHANGE_LAYER = """layer => new Promise((done) => {
  const began = performance.now();
  const choice = document.querySelector('select#layer');
  choice.value = layer;
  choice.dispatchEvent(new Event('change'));
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
})"""
Change = Callable[[Any, int], float]


def bertviz_pages(folder: Path, name: str, tensors: dict[str, Any]) -> dict[str, Path]:
    """What bertviz makes of tensors: its head view and its model view, as files."""
    # It takes the layers of the encoder for those of the decoder, so that both must be of one depth.
    depth = min(len(value) for key, value in tensors.items() if key.endswith("attention"))
    cut = {key: value[:depth] if key.endswith("attention") else value for key, value in tensors.items()}
    pages = {}
    for view in ("head_view", "model_view"):
        pages[view] = folder / f"{name}-{view}.html"
        shown = getattr(bertviz, view)(**cut, html_action="return")
        pages[view].write_text(f"<!doctype html><meta charset=utf-8>{shown.data}", encoding="utf-8")
    return pages


def handed_over(path: Path) -> dict[str, Any]:
    """The arguments of bertviz's functions in a file of `inspect --tensors`."""
    with safe_open(path, "pt") as file:
        stacks = {name: list(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        return {**stacks, **{name: json.loads(text) for name, text in file.metadata().items() if "tokens" in name}}


def made_up(view: dict[str, Any]) -> dict[str, Any]:
    """The same arguments, of a made-up view."""
    from clearhead.inspection.view import unpacked

    found: dict[str, Any] = {}
    for block in view["attention"]:
        sizes = [len(view["tokens"][block[side]]) for side in ("queries", "keys")]
        stack = unpacked(block, block["layers"], block["heads"], *sizes)
        found[f"{block['kind']}_attention"] = list(stack[:, None])
    for name, side in (("encoder_tokens", "source"), ("decoder_tokens", "read")):
        found[name] = [token["text"] for token in view["tokens"][side]]
    return found


class Browser:
    """Opens pages, with copies of bertviz's scripts or without a network, and looks at the clock."""

    def __init__(self, chromium: Any, scripts: Path | None) -> None:
        self.chromium, self.scripts = chromium, scripts

    @contextmanager
    def page(self) -> Iterator[tuple[Any, list[str]]]:
        """A fresh browser's page, and a list that grows by every address it asks the network for."""
        browser = self.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(TOO_LONG)
        asked: list[str] = []

        def answer(route: Any) -> None:
            asked.append(route.request.url)
            copy = None if self.scripts is None else self.scripts / route.request.url.rsplit("/", 1)[-1]
            route.fulfill(path=copy) if copy is not None and copy.is_file() else route.abort()

        page.route("http*://**/*", answer)
        try:
            yield page, asked
        finally:
            browser.close()

    def times(self, address: str, shown: str, change: Change | None) -> tuple[float, float] | None:
        """Milliseconds to open a page until something is shown, and to change it; None if it takes too long."""
        opened, changed = [], []
        for _ in range(ROUNDS):
            with self.page() as (page, _):
                try:
                    page.goto(address, wait_until="commit")
                    page.locator(shown).first.wait_for(state="attached")
                    opened.append(page.evaluate(DRAWN))
                    if change is not None:
                        changed.append(statistics.median(change(page, layer) for layer in range(1, 4)))
                except Exception as error:
                    print(f"  {address.rsplit('/', 1)[-1]}: {str(error).splitlines()[0]}")
                    return None
        return statistics.median(opened), statistics.median(changed) if changed else 0.0


def our_change(page: Any, layer: int) -> float:
    return float(page.evaluate(SWITCH, f"pick-{layer},3"))


def their_change(page: Any, layer: int) -> float:
    return float(page.evaluate(CHANGE_LAYER, str(layer)))


def the_same_sentence(browser: Browser, folder: Path, model: str, text: str) -> list[tuple[str, ...]]:
    """Sizes, what is asked of the network, and what is left without it."""
    found = clearhead.load(model).inspect(text)
    ours = found.save(folder / "ours.html")
    theirs = bertviz_pages(folder, "theirs", handed_over(found.save(folder / "tensors.safetensors")))
    offline = Browser(browser.chromium, None)
    rows: list[tuple[str, ...]] = []
    for name, path, shown in (
        ("Clearhead's page", ours, ".token"),
        ("bertviz head view", theirs["head_view"], "svg text"),
        ("bertviz model view", theirs["model_view"], "svg *"),
    ):
        with offline.page() as (page, asked):
            page.goto(path.as_uri())
            page.wait_for_timeout(1000)
            there = page.locator(shown).count()
        took = browser.times(path.as_uri(), shown, None)
        opened = "too long" if took is None else f"{took[0]:.0f} ms"
        hosts = ", ".join(sorted({urlsplit(address).netloc for address in asked}))
        alone = "the same" if there and not asked else f"nothing is drawn: its scripts are at {hosts}"
        rows.append((name, f"{path.stat().st_size / 1000:.0f} kB", opened, alone))
    return rows


def longer_and_longer(browser: Browser, folder: Path) -> list[tuple[str, ...]]:
    """For each length, the size of the file, the time to open it and the time of a change."""
    rows: list[tuple[str, ...]] = []
    lost: set[str] = set()
    for length in LENGTHS:
        view = big_view(length, LAYERS, HEADS)
        ours = folder / "long.html"
        write_page(ours, view)
        theirs = bertviz_pages(folder, "long", made_up(view)) if len(lost) < 2 else {}
        contestants = [
            ("Clearhead, sentence", ours, "#heads=0.0", ".token", our_change),
            ("Clearhead, gallery", ours, "#view=gallery", ".thumb[data-drawn]", None),
        ]
        contestants += [
            (
                f"bertviz, {view_name.replace('_', ' ')}",
                path,
                "",
                "svg *",
                their_change if "head" in view_name else None,
            )
            for view_name, path in theirs.items()
            if view_name not in lost
        ]
        for name, path, hash, shown, change in contestants:
            took = browser.times(path.as_uri() + hash, shown, change)
            size = f"{path.stat().st_size / 1e6:.1f} MB"
            if took is None or took[0] > LONG:
                lost.add(name.split(", ")[1].replace(" ", "_"))
            if took is None:
                rows.append((str(length), name, size, f"more than {TOO_LONG // 1000} s", "–"))
            else:
                changed = f"{took[1]:.0f} ms" if change else "–"
                rows.append((str(length), name, size, f"{took[0]:.0f} ms", changed))
            print(rows[-1])
    return rows


def main() -> None:
    """Compare, print, and write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--scripts", type=Path, help="copies of the scripts that bertviz loads from the network")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = Browser(playwright.chromium, given.scripts)
        same = the_same_sentence(browser, Path(name), given.model, given.text)
        long = longer_and_longer(browser, Path(name))
    command = 'python benchmarks/beside_bertviz.py MODEL "a text" --scripts FOLDER'
    columns = ("the same sentence", "file", "opens in", "without a network")
    record("The page beside bertviz", command, columns, same, f"The sentence: {given.text}")
    more = ("tokens", "view", "file", "opens in", "another head or layer")
    remark = f"{LAYERS} layers of {HEADS} heads, three kinds of attention; up to {AT_ONCE} ms seem at once."
    record("Long inputs beside bertviz", command, more, long, remark)
    for row in (*same, *long):
        print(*row, sep="\t")


if __name__ == "__main__":
    main()
