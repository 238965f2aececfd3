"""Score, time and weigh the model in the box, and write its card: `CLEARHEAD_DATA=… python benchmarks/box.py`.

The test pairs are those that the recipe holds out; the examples are from `box_sentences.tsv`, which has none of them.
`--model DIR` takes another model directory, and then nothing is recorded but its own card.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from results import record

from clearhead.checkpoint import rewrite_card
from clearhead.evaluate import Scores, score
from clearhead.run.built_in import NAME, assets
from clearhead.run.card import with_section
from clearhead.run.engines import load_translator
from clearhead.run.scoring import ToScore, pairs_to_score, translated
from clearhead.run.using import load

SENTENCES = Path(__file__).with_name("box_sentences.tsv")
COMMAND = "python benchmarks/box.py"
LARGEST_BYTES = 16_000_000
STARTS = 5
LANGUAGES = {"de": "German", "zh": "Chinese"}
ATTRIBUTION = (
    "Trained on sentence pairs from [Tatoeba](https://tatoeba.org), written by its contributors and released under "
    "[CC BY 2.0 FR](https://creativecommons.org/licenses/by/2.0/fr/), in the files that "
    "[manythings.org/anki](https://www.manythings.org/anki/) made of them. Whoever passes this model on must name "
    "Tatoeba. Made with the recipes `tatoeba-de-zh-en`, going on from it `tatoeba-de-zh-en-more`, and from that "
    "`tatoeba-de-zh-en-wide`, which was stopped at step 1,424 and begun again with invented names, and from what that "
    "gave `tatoeba-de-zh-en-deep`, `tatoeba-de-zh-en-diverse`, stopped at step 4,163, with pairs that models made of "
    "these, `tatoeba-de-zh-en-fine`, `tatoeba-de-zh-en-agree`, stopped at step 1,300, `tatoeba-de-zh-en-close` and "
    "`tatoeba-de-zh-en-sharp`; packed with `clearhead pack --dtype int8`. `training_config.toml` beside this card has "
    "every setting of the last part."
)


def main() -> None:
    """Measure, and write card and results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=assets() / NAME)
    model: Path = parser.parse_args().model
    size = sum(path.stat().st_size for path in model.iterdir())
    if size >= LARGEST_BYTES:
        sys.exit(f"{model} has {size:,} bytes: the box holds less than {LARGEST_BYTES:,}")
    scores = dict(measured(model))
    write_card(model, scores)
    size = sum(path.stat().st_size for path in model.iterdir())
    seconds = cold_start(model)
    rows = [
        *((f"BLEU, {LANGUAGES[name]} to English", figure(found)) for name, found in scores.items()),
        *((f"chrF, {LANGUAGES[name]} to English", f"{found.chrf:.2f}") for name, found in scores.items()),
        ("one sentence with `clearhead translate`, from a cold start", f"{seconds:.2f} s (median of {STARTS})"),
        ("all files", f"{size / 1e6:.2f} MB"),
        ("weights", f"{(model / 'model.safetensors').stat().st_size / 1e6:.2f} MB"),
    ]
    if model == assets() / NAME:
        remark = f"BLEU as sacreBLEU's `{next(iter(scores.values())).bleu_signature}`."
        record("The model in the box", COMMAND, ("what", "figure"), rows, remark)
    for what, found in rows:
        print(f"{what:<62} {found}")


def measured(model: Path) -> Iterator[tuple[str, Scores]]:
    """The scores of each language on the pairs that were held out for the final test."""
    pairs, language = pairs_to_score(model, None, None, None, "test", None)
    translator = load_translator(model, device="cpu")
    found = list(translated(translator, [pair.source for pair in pairs], beam=None, progress=lambda done: None))
    for name in dict.fromkeys(pair.part for pair in pairs):
        rows = [row for row, pair in enumerate(pairs) if pair.part == name]
        yield str(name), score([found[row] for row in rows], references(pairs, rows), target_language=language)


def references(pairs: list[ToScore], rows: list[int]) -> list[str]:
    """The references of some rows."""
    return [pairs[row].reference for row in rows]


def write_card(model: Path, scores: dict[str, Scores]) -> None:
    """Put scores, examples and attribution on the card, in the place of earlier ones."""
    card = (model / "README.md").read_text(encoding="utf-8")
    card = with_section(card, "Scores", score_table(scores))
    card = with_section(card, "Examples", examples(model))
    rewrite_card(model, with_section(card, "Data and attribution", ATTRIBUTION))


def score_table(scores: dict[str, Scores]) -> str:
    """What the model reaches on sentences whose English side it has never seen."""
    lines = [
        "On the pairs that the recipe holds out for the final test (`clearhead score --split test`). None of their "
        "English sentences is in the training data, not even in another case or with other punctuation; some of their "
        "source sentences are, with another translation.",
        "",
        "| from | pairs | BLEU (95 % interval) | chrF |",
        "|---|---|---|---|",
        *(f"| {LANGUAGES[name]} | {s.count:,} | {figure(s)} | {s.chrf:.2f} |" for name, s in scores.items()),
        "",
        *(f"{kind}: `{signature}`  " for kind, signature in signatures(scores)),
    ]
    return "\n".join(lines).rstrip()


def signatures(scores: dict[str, Scores]) -> list[tuple[str, str]]:
    """How the scores were measured, which is the same for all."""
    one = next(iter(scores.values()))
    return [("BLEU", one.bleu_signature), ("chrF", one.chrf_signature)]


def figure(scores: Scores) -> str:
    """BLEU with its interval."""
    assert scores.bleu_interval is not None
    return f"{scores.bleu:.2f} ({scores.bleu_interval[0]:.2f} to {scores.bleu_interval[1]:.2f})"


def examples(model: Path) -> str:
    """Every sentence of the list and what the model makes of it, good or bad."""
    texts = [line.split("\t")[1] for line in SENTENCES.read_text(encoding="utf-8").rstrip("\n").split("\n")]
    rows = zip(texts, load(model, "cpu").translate(texts), strict=True)
    lines = [
        "Sentences that are not in the data, as the model translates them, all of them and unedited.",
        "",
        "| text | translation |",
        "|---|---|",
        *(f"| {text} | {found.replace('|', chr(92) + '|')} |" for text, found in rows),
    ]
    return "\n".join(lines)


def cold_start(model: Path) -> float:
    """Seconds from the start of the program to its end, one short sentence in between."""
    command = [sys.executable, "-m", "clearhead", "translate", "--model", str(model), "Wo ist der Bahnhof?"]
    seconds = []
    for _ in range(STARTS):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
