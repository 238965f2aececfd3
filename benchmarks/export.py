"""Exports beside torch, written to RESULTS.md: `python benchmarks/export.py`.

Translators are compared on Multi30k's test set: those named by --model, and four small ones that are trained first,
with norms before or after and tables tied or not. Models of other kinds, named by --other, answer what `clearhead
export` asks them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from results import record

from clearhead.bench.decoding import sentences_of
from clearhead.engines.opening import cores, open_exported
from clearhead.engines.texts import TextTranslator
from clearhead.errors import ClearheadError
from clearhead.evaluate import score
from clearhead.export.targets import TARGETS
from clearhead.export.verify import Speaker
from clearhead.run.comparing import TRIALS
from clearhead.run.exporting import export
from clearhead.run.translating import LoadedTranslator
from clearhead.run.using import load, load_as

SHAPES = {f"{residual}-{tie}": (residual, tie) for residual in ("pre", "post") for tie in ("all", "none")}
WAYS = (("ctranslate2", None), ("ctranslate2", "int8"), ("onnx", None), ("onnx", "int8"))
BEAM = 5
SENTENCES = 1000
COMMAND = "python benchmarks/export.py"
COLUMNS = (
    "model", "engine", "size, MB", "same greedy output", "largest difference of a score", "greedy BLEU (torch)",
    "same beam 5 output", "beam 5 BLEU (torch)", "greedy /s (torch)", "beam 5 /s (torch)", "start to answer, s",
)  # fmt: skip


OTHER_COLUMNS = (
    "model", "kind", "engine", "size, MB", "same answers", "largest difference of a score", "own settings /s (torch)",
    "greedy /s (torch)",
)  # fmt: skip


def main() -> None:
    """Export each model in every way, let both translate in turns, and write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, action="append", default=[], help="another model; may be repeated")
    parser.add_argument("--out", type=Path, default=Path("runs/export-benchmark"), help="where models are kept")
    parser.add_argument("--train-steps", type=int, default=1000, help="steps of training of each small one")
    parser.add_argument("--sentences", type=int, default=SENTENCES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--other", type=Path, action="append", help="a model directory of another kind; may be repeated"
    )
    parser.add_argument("--settings", action="store_true", help="only: how CTranslate2 is called, with the first model")
    asked = parser.parse_args()
    if asked.other:
        rows = [row for model in asked.other for row in compared_kind(model, asked.rounds)]
        remark = (
            f"{cores()} cores; speeds are medians of {asked.rounds} rounds in turns, on what `clearhead export` asks."
        )
        record("Exports of other kinds", f"{COMMAND} --other MODEL …", OTHER_COLUMNS, rows, remark)
        return
    names = list(SHAPES)
    if asked.settings:
        names = names[:1] if not asked.model else []
    models = [*asked.model, *(trained(asked.out / name, name, asked.train_steps) for name in names)]
    sources, references = (sentences_of(language)[: asked.sentences] for language in ("de", "en"))
    training = [f"--train-steps {asked.train_steps}"] if names else []
    fewer = [f"--sentences {asked.sentences}"] if asked.sentences < SENTENCES else []
    command = " ".join([COMMAND, *(f"--model {model}" for model in asked.model), *training, *fewer])
    if asked.settings:
        record_settings(f"{command} --settings --rounds {asked.rounds}", models[0], sources, asked.rounds)
        return
    rows = [row for model in models for row in compared(model, sources, references, asked.rounds)]
    remark = (
        f"{len(sources):,} sentences of Multi30k test_2016_flickr; {cores()} cores; speeds are medians of "
        f"{asked.rounds} rounds in turns; the start is that of `clearhead translate` with one sentence, best of 3."
    )
    record("Exports", command, COLUMNS, rows, remark)
    record_settings(command, models[0], sources, asked.rounds)


def trained(out: Path, name: str, steps: int) -> Path:
    """A small model that has learnt where sentences end."""
    if not (out / "model").is_dir():
        residual, tie = SHAPES[name]
        command = [sys.executable, "-m", "clearhead", "train", "multi30k", "--out", str(out), "--processes", "2"]
        settings = (f"model.residual={residual}", f"model.tie={tie}", f"train.steps={steps}", "train.average=1")
        subprocess.run([*command, *(word for setting in settings for word in ("--set", setting))], check=True)
    return out / "model"


def compared(model: Path, sources: Sequence[str], references: Sequence[str], rounds: int) -> list[tuple[str, ...]]:
    """One row for each way to export a model."""
    original = load_as(LoadedTranslator, model, "cpu")
    rows = []
    for engine, quantize in WAYS:
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder) / "model"
            parity = export(model, engine, directory, quantize=quantize, bleu_drop=100.0)
            copy = open_exported(directory)
            cells = [f"{model.parent.name}", engine + (f", {quantize}" if quantize else "")]
            cells.append(f"{parity.exported.size / 1e6:.1f} of {parity.original.size / 1e6:.1f}")
            speeds = []
            for beam in (1, BEAM):
                ours, theirs, seconds = in_turns(original, copy, sources, beam, rounds)
                same = sum(one == other for (one, _), (other, _) in zip(ours, theirs, strict=True))
                apart = [abs(a - b) for (one, a), (other, b) in zip(ours, theirs, strict=True) if one == other]
                bleu = [score([text for text, _ in side], references, resamples=0).bleu for side in (theirs, ours)]
                cells.append(f"{same:,} of {len(sources):,}")
                cells += [f"{max(apart, default=0.0):.1e}"] if beam == 1 else []
                cells.append(f"{bleu[0]:.2f} ({bleu[1]:.2f})")
                speeds.append(f"{len(sources) / seconds[1]:,.0f} ({len(sources) / seconds[0]:,.0f})")
            rows.append((*cells, *speeds, f"{start(directory, sources[0]):.2f}"))
            print(*rows[-1], sep="  ")
    return rows


def compared_kind(model: Path, rounds: int) -> list[tuple[str, ...]]:
    """One row for each way to export a model that is no translator; what is asked are random tokens or pixels."""
    original = load(model, "cpu")
    kind = original.kind
    trial, rows = TRIALS[kind], []
    texts = trial.asked(original, None).texts
    for engine, quantize in WAYS:
        if kind not in TARGETS[engine]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder) / "model"
            try:
                parity = export(model, engine, directory, quantize=quantize)
            except ClearheadError as error:
                print(model.name, engine, quantize, error)
                continue
            sides = [trial.speaker(original), trial.speaker(open_exported(directory))]
            rates = [
                f"{len(texts) / their:,.1f} ({len(texts) / our:,.1f})" for our, their in timed(sides, texts, rounds)
            ]
            size = f"{parity.exported.size / 1e6:.1f} of {parity.original.size / 1e6:.1f}"
            same = f"{round(parity.identical * parity.texts):,} of {parity.texts:,}"
            name = engine + (f", {quantize}" if quantize else "")
            rows.append((model.name, kind, name, size, same, f"{parity.logit_difference:.1e}", *rates))
            print(*rows[-1], sep="  ")
    return rows


def timed(sides: Sequence[Speaker], texts: Sequence[Any], rounds: int) -> list[tuple[float, float]]:
    """The median seconds of both, in turns: by their own settings, and greedily."""
    found: list[list[list[float]]] = [[[], []], [[], []]]
    for _ in range(rounds):
        for way in range(2):
            for place, side in enumerate(sides):
                began = time.perf_counter()
                (side.answers if way == 0 else side.greedy)(texts)
                found[way][place].append(time.perf_counter() - began)
    return [(statistics.median(ours), statistics.median(theirs)) for ours, theirs in found]


Said = list[tuple[str, float]]


def in_turns(
    original: TextTranslator, copy: TextTranslator, sources: Sequence[str], beam: int, rounds: int
) -> tuple[Said, Said, tuple[float, float]]:
    """What both say, with scores, and the median of the seconds it takes each."""
    found: list[Said] = [[], []]
    seconds: list[list[float]] = [[], []]
    for _ in range(rounds):
        for place, translator in enumerate((original, copy)):
            config = translator.configured(beam_size=beam, nbest=1)
            began = time.perf_counter()
            found[place] = [(best[0].text, best[0].score) for best in translator.stream(sources, config)]
            seconds[place].append(time.perf_counter() - began)
    return found[0], found[1], (statistics.median(seconds[0]), statistics.median(seconds[1]))


def start(model: Path, text: str) -> float:
    """Seconds from the command to its answer."""
    program = shutil.which("clearhead", path=os.pathsep.join([str(Path(sys.executable).parent), os.defpath]))
    command = [program] if program else [sys.executable, "-m", "clearhead"]
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run([*command, "translate", "--model", str(model), text], check=True, capture_output=True)
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def record_settings(command: str, model: Path, sources: Sequence[str], rounds: int) -> None:
    """Write down how fast CTranslate2 is by the way it is called."""
    settings = by_setting(model, sources, rounds)
    remark = (
        f"Sentences a second; {len(sources):,} sentences of Multi30k's test set, int8, medians of {rounds} "
        "interleaved rounds; beams with the model's own patience and length penalty. A setting is workers × threads."
    )
    record("CTranslate2, how it is called", command, ("setting", "greedy /s", "beam 5 /s"), settings, remark)
    for row in settings:
        print(*row, sep="  ")


def by_setting(model: Path, sources: Sequence[str], rounds: int) -> list[tuple[str, ...]]:
    """CTranslate2's own call in several settings, and ours, in turns, with int8 weights."""
    import ctranslate2

    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "model"
        export(model, "ctranslate2", directory, quantize="int8", bleu_drop=100.0)
        copy = open_exported(directory)
        tokens, encoded = copy.tokenizers.source.tokens(), copy.encode(sources, 0)
        lines = [[tokens[index] for index in ids] for ids in encoded]
        plain: dict[str, Callable[[int], object]] = {
            "ours, from text to text": lambda beam: copy.translate(sources, beam_size=beam),
            "ours, from tokens to tokens": lambda beam: copy.engine.search(
                encoded, copy.configured(beam_size=beam), range(len(encoded)), scored=False
            ),
            "the same with scores": lambda beam: copy.engine.search(
                encoded, copy.configured(beam_size=beam), range(len(encoded))
            ),
            "without scores and without the guard against loops": lambda beam: copy.engine.search(
                encoded, copy.configured(beam_size=beam, loop_guard=False), range(len(encoded)), scored=False
            ),
        }
        for workers, threads in ((1, cores()), (cores(), 1)):
            translator = ctranslate2.Translator(str(directory), inter_threads=workers, intra_threads=threads)
            for batch in (16, 32, 64):

                def call(beam: int, translator: Any = translator, batch: int = batch) -> object:
                    options = {"beam_size": beam, "max_batch_size": batch, "max_decoding_length": 100}
                    own = copy.generation
                    return translator.translate_batch(
                        lines, **options, patience=own.patience, length_penalty=own.length_penalty
                    )

                plain[f"{workers} × {threads}, batches of {batch}"] = call
        seconds: dict[tuple[str, int], list[float]] = {}
        for _ in range(rounds):
            for name, run in plain.items():
                for beam in (1, BEAM):
                    began = time.perf_counter()
                    run(beam)
                    seconds.setdefault((name, beam), []).append(time.perf_counter() - began)
    rates = {key: len(sources) / statistics.median(found) for key, found in seconds.items()}
    return [(name, f"{rates[name, 1]:,.0f}", f"{rates[name, BEAM]:,.0f}") for name in plain]


if __name__ == "__main__":
    main()
