"""Turn the German of Multi30k back into English, for the recipe multi30k-en-de: `python benchmarks/made_source.py`.

The quick recipe is trained in lower case unless it has been, exported for CTranslate2, and asked for all lines.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import clearhead
from clearhead.data.lines import TextFile
from clearhead.data.sets import set_file

RUN, ENGINE, MADE = Path("runs/multi30k-back"), Path("runs/multi30k-back-int8"), Path("runs/multi30k-made.en")


def main() -> None:
    """Train and export unless that is done, then translate."""
    if not (RUN / "model").is_dir():
        more = ["--resume"] if (RUN / "config.toml").is_file() else []
        settings = ["--processes", "2", "--set", "tokenizer.lowercase=true"]
        run_clearhead("train", "multi30k-quick", "--out", str(RUN), *settings, *more)
    if not ENGINE.is_dir():
        run_clearhead("export", str(RUN), "--to", "ctranslate2", "--quantize", "int8", "--out", str(ENGINE))
    # A line that cannot be read is not trained on, whatever stands beside it.
    lines = [line if isinstance(line, str) else "" for line in TextFile(set_file("multi30k", "train.de")).lines()]
    made = clearhead.load(ENGINE).translate(lines, beam_size=5)
    MADE.write_text("".join(f"{text}\n" for text in made), encoding="utf-8")
    print(f"{len(made):,} lines are in {MADE}", file=sys.stderr)


def run_clearhead(*words: str) -> None:
    """A command of ours, which shows its own progress."""
    subprocess.run([sys.executable, "-m", "clearhead", *words], check=True)


if __name__ == "__main__":
    main()
