"""Make the example page and the pictures in docs/ from trained models: `python benchmarks/examples.py`.

It needs the two models that it shows: `clearhead train multi30k-quick` makes one, `make demo` the other.
"""

from __future__ import annotations

import argparse
import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

import clearhead

DOCS = Path(__file__).parents[1] / "docs"
TEXT = "Ein brauner Hund springt über ein Hindernis und wird von vielen Leuten beobachtet."
NUMBER = "dreiundzwanzig"
WIDE, PHONE = (1280, 800), (360, 720)
STATES = {
    "inspect-sentence.png": (WIDE, "#words=1&token=q10&theme=light&language=en"),
    "inspect-map.png": (WIDE, "#view=map&heads=1.0&words=1&theme=dark&language=en"),
    "inspect-gallery.png": (WIDE, "#view=gallery&theme=light&language=en"),
    "inspect-generation.png": (WIDE, "#view=generation&step=3&theme=light&language=en"),
    "inspect-phone.png": (PHONE, "#view=map&words=1&theme=dark&language=zh"),
}
"""What each picture shows: the size of the window, and the state of the page."""
COLOURS = 256
"""As many as a palette holds: enough for these pictures, and a third of the size."""


def picture(browser: Browser, page: Path, size: tuple[int, int], state: str) -> Image.Image:
    """The page in one state, all of it."""
    is_phone = size == PHONE
    window = browser.new_page(
        viewport={"width": size[0], "height": size[1]}, device_scale_factor=2 if is_phone else 1, has_touch=is_phone
    )
    window.goto(page.as_uri() + state)
    window.wait_for_timeout(500)
    # What lies below the edge is drawn when it comes near.
    window.set_viewport_size({"width": size[0], "height": window.evaluate("document.documentElement.scrollHeight")})
    window.wait_for_timeout(500)
    dots = window.screenshot()
    window.close()
    return Image.open(io.BytesIO(dots)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)


def main() -> None:
    """Write the page and the pictures, and say how large they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", default="runs/multi30k-quick", help="a German-English model")
    parser.add_argument("--numbers", default="demo/run", help="the model of the demo")
    parser.add_argument("--text", default=TEXT)
    given = parser.parse_args()
    page = clearhead.load(given.sentences).inspect(given.text).save(DOCS / "example.html")
    clearhead.load(given.numbers).inspect(NUMBER).save(DOCS / "attention.png", heads="cross")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (size, state) in STATES.items():
            picture(browser, page, size, state).save(DOCS / name, optimize=True)
        browser.close()
    for path in (page, DOCS / "attention.png", *(DOCS / name for name in STATES)):
        print(f"{path.stat().st_size:>9,}  {path}")


if __name__ == "__main__":
    main()
