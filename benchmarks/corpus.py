"""Millions of made-up pairs through checking, tokenising and training, with rate and memory of each stage.

`python benchmarks/corpus.py --millions 10 --folder FOLDER`; every stage is a process of its own. RSS counts mapped
pages of the tokenised corpus, which are page cache: all processes of a machine share them, and they are given up when
memory is short. Anonymous memory is what a process really needs. Private memory (USS) lies between: mapped pages count
if no other process happens to map them too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from made_up import make_corpus
from results import record

STEPS = 60
COMPARED = 300_000
FEW = 100_000
POLL_SECONDS = 0.2
Figures = dict[str, Any]


def main() -> None:
    """Run all stages, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, default=1.0, help="how many million pairs")
    parser.add_argument("--folder", type=Path, help="where to put the corpus and the cache; left out, a temporary one")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.stage:
        print(json.dumps(STAGES[asked.stage](asked.folder, round(asked.millions * 1e6))))
    elif asked.folder:
        measure_all(asked.folder, asked.millions)
    else:
        with tempfile.TemporaryDirectory() as folder:
            measure_all(Path(folder), asked.millions)


def measure_all(folder: Path, millions: float) -> None:
    """Each stage as a process, its figures in RESULTS.md."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "cache", ignore_errors=True)
    rows, found = [], {}
    for stage in STAGES:
        figures = found[stage] = measured(stage, folder, millions)
        print(stage, figures, flush=True)
        rows.append(
            (
                stage,
                figures["did"],
                f"{figures['seconds']:,.1f}",
                f"{figures['rss']:,.0f}",
                f"{figures['private']:,.0f}",
                f"{figures['anonymous']:,.0f}",
                figures["processes"],
            )
        )
    disk = ", ".join(f"{name} {megabytes(folder / name):,.0f} MB" for name in ("text", "cache"))
    record(
        f"A corpus of {millions:g} million pairs",
        f"python benchmarks/corpus.py --millions {millions:g}",
        ("stage", "did", "seconds", "peak RSS, MB", "peak private, MB", "peak anonymous, MB", "processes"),
        rows,
        f"On {len(os.sched_getaffinity(0))} cores. Memory is that of the largest process of a stage; torch alone takes "
        f"{idle():,.0f} MB of RSS. RSS and private memory count mapped pages of the corpus, which are page cache; "
        f"anonymous memory does not. What each of two processes that train takes above the model, torch and a step, so "
        f"more than with {FEW:,} pairs: {above(found, 'rss')} MB of RSS, {above(found, 'private')} MB private, "
        f"{above(found, 'anonymous')} MB anonymous. On disk: {disk}.",
    )


def above(found: dict[str, Figures], kind: str) -> str:
    """How much more memory training takes on the whole corpus than on a small one."""
    return f"{found['train, two processes'][kind] - found['train, two processes, few pairs'][kind]:,.0f}"


def measured(stage: str, folder: Path, millions: float) -> Figures:
    """Run one stage and watch its memory."""
    command = [sys.executable, __file__, "--stage", stage, "--folder", str(folder), "--millions", str(millions)]
    environment = {**os.environ, "CLEARHEAD_CACHE": str(folder / "cache")}
    peaks = {"rss": 0.0, "private": 0.0, "anonymous": 0.0}
    processes = 1
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        while process.poll() is None:
            family = [process.pid, *children(process.pid)]
            processes = max(processes, len(family))
            for pid in family:
                with suppress(OSError, KeyError):
                    peaks = {name: max(peak, now) for (name, peak), now in zip(peaks.items(), memory(pid), strict=True)}
            time.sleep(POLL_SECONDS)
        told = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"stage {stage} failed")
    return {**json.loads(told.splitlines()[-1]), **peaks, "processes": processes}


def children(pid: int) -> list[int]:
    """The processes a process has started, and those they have."""
    started: list[int] = []
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/task").iterdir():
            started += map(int, (path / "children").read_text().split())
    return started + [child for one in started for child in children(one)]


def memory(pid: int) -> tuple[float, float, float]:
    """Megabytes of a process: resident, private and anonymous."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    private = kilobytes["Private_Clean"] + kilobytes["Private_Dirty"]
    return kilobytes["Rss"] / 1000, private / 1000, kilobytes["Anonymous"] / 1000


def idle() -> float:
    """Megabytes of a process that has imported what training needs, and done nothing."""
    code = "import clearhead.run.training; print([l for l in open('/proc/self/status') if 'VmRSS' in l][0].split()[1])"
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) / 1000


def megabytes(path: Path) -> float:
    """What a folder takes on disk."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e6


def generate(folder: Path, pairs: int) -> Figures:
    """Make the corpus, unless it is there."""
    made = folder / f"made-{pairs}"
    began = time.perf_counter()
    if not made.exists():
        make_corpus(folder / "text", pairs)
        made.touch()
    return {"did": f"{pairs:,} pairs", "seconds": time.perf_counter() - began}


def check(folder: Path, pairs: int) -> Figures:
    """Judge all pairs, mark duplicates, hold some out."""
    from clearhead.run.preparing import examine

    began = time.perf_counter()
    examined = examine(configuration(folder))
    seconds = time.perf_counter() - began
    return {"did": f"{pairs / seconds:,.0f} pairs/s; {examined.checkup.report.kept:,} kept", "seconds": seconds}


def recheck(folder: Path, pairs: int) -> Figures:
    """The same again, as a run that goes on, or another process of the same run, would do it."""
    return check(folder, pairs)


def tokenizer(folder: Path, pairs: int) -> Figures:
    """Train the tokenizer on its sample."""
    from clearhead.run.preparing import examine
    from clearhead.text import TokenizerPair

    config = configuration(folder)
    examined = examine(config)
    sample = config.tokenizer.sample
    began = time.perf_counter()
    texts = examined.training_texts(0, sample), examined.training_texts(1, sample)
    TokenizerPair.train(config.tokenizer, *texts).save(folder)
    used = min(sample, examined.num_training_pairs)
    return {
        "did": f"BPE of {config.tokenizer.vocab_size:,} from {used:,} pairs",
        "seconds": time.perf_counter() - began,
    }


def tokenise(folder: Path, pairs: int) -> Figures:
    """Tokenise all pairs with as many processes as there are cores."""
    from clearhead.run.preparing import examine, prepare
    from clearhead.text import TokenizerPair

    config = configuration(folder)
    examined = examine(config)
    began = time.perf_counter()
    steps = prepare(config, examined, TokenizerPair.load(folder))
    prepared = to_the_end(steps)
    seconds = time.perf_counter() - began
    tokens = int(prepared.training.source_lengths.sum(dtype="i8") + prepared.training.target_lengths.sum(dtype="i8"))
    return {"did": f"{pairs / seconds:,.0f} pairs/s, {tokens / seconds / 1e6:.2f} M tokens/s", "seconds": seconds}


def compared(workers: int) -> Callable[[Path, int], Figures]:
    """Tokenise the first pairs with one process and the threads of `tokenizers`, or with several processes."""

    def stage(folder: Path, pairs: int) -> Figures:
        from itertools import islice

        from clearhead.data.corpus import tokenise
        from clearhead.data.sources import AlignedFiles
        from clearhead.text import TokenizerPair

        source = AlignedFiles(folder / "text" / "corpus.source", folder / "text" / "corpus.target")
        some = ((pair.number, str(pair.source), str(pair.target)) for pair in islice(source.pairs(), COMPARED))
        loaded = TokenizerPair.load(folder)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            began = time.perf_counter()
            tokenise(some, loaded, Path(place) / "pairs", max_len=256, workers=workers)
            seconds = time.perf_counter() - began
        first = min(COMPARED, pairs)
        return {"did": f"{first / seconds:,.0f} pairs/s of the first {first:,}", "seconds": seconds}

    return stage


def train(folder: Path, pairs: int) -> Figures:
    """Open everything, plan an epoch and take some steps with a tiny model."""
    from clearhead.run.assembling import assemble
    from clearhead.run.preparing import examine, prepare
    from clearhead.text import TokenizerPair
    from clearhead.training.events import Progress
    from clearhead.training.loop import TrainingState

    shutil.rmtree(folder / "run", ignore_errors=True)
    config = configuration(folder)
    began = time.perf_counter()
    prepared = to_the_end(prepare(config, examine(config), TokenizerPair.load(folder)))
    opened = time.perf_counter()
    loop = assemble(config, prepared).loop
    loop.batches.num_batches(0)
    planned = time.perf_counter()
    *_, last = (event for event in loop.run(TrainingState()) if isinstance(event, Progress))
    seconds = time.perf_counter() - planned
    did = (
        f"opened in {opened - began:.1f} s, epoch planned in {planned - opened:.1f} s, {STEPS} steps in {seconds:.1f} s"
    )
    return {"did": f"{did}, {last.tokens_per_second:,.0f} target tokens/s", "seconds": time.perf_counter() - began}


def train_together(folder: Path, pairs: int) -> Figures:
    """The same as a user has it: one command, two processes, the checked and tokenised corpus from the cache."""
    from clearhead.training.logbook import read_metrics

    out = folder / "run-of-two"
    shutil.rmtree(out, ignore_errors=True)
    written = [
        f"[{section}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        for section, values in settings(folder).items()
    ]
    (folder / "config.toml").write_text("\n".join(written), encoding="utf-8")
    words = ["train", str(folder / "config.toml"), "--out", str(out), "--processes", "2"]
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "clearhead", *words], check=True, stdout=sys.stderr)
    seconds = time.perf_counter() - began
    *_, last = (row for row in read_metrics(out / "metrics.jsonl") if row["event"] == "progress")
    return {
        "did": f"{STEPS} steps on 2 processes, {last['tokens_per_second']:,.0f} target tokens/s",
        "seconds": seconds,
    }


def train_on_few(folder: Path, pairs: int) -> Figures:
    """The same on a corpus so small that what a process takes is the model, torch and a step."""
    make_corpus(folder / "few" / "text", FEW)
    figures = train_together(folder / "few", FEW)
    return {**figures, "did": f"{figures['did']}, {FEW:,} pairs"}


def configuration(folder: Path) -> Any:
    """The configuration of all stages."""
    from clearhead.run.settings import resolve

    return resolve({"out": str(folder / "run"), **settings(folder)})


def settings(folder: Path) -> dict[str, dict[str, Any]]:
    """A tiny model, for the corpus is what is tried."""
    text = folder / "text"
    return {
        "data": {"source": str(text / "corpus.source"), "target": str(text / "corpus.target"), "hold_out": 500},
        "tokenizer": {"vocab_size": 16_000},
        "model": {
            "dim": 64,
            "ff_dim": 128,
            "num_heads": 2,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "max_len": 256,
        },
        "train": {"steps": STEPS, "validate_every": STEPS, "log_every": STEPS},
    }


def to_the_end(steps: Any) -> Any:
    """What a generator returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


STAGES: dict[str, Callable[[Path, int], Figures]] = {
    "generate": generate,
    "check": check,
    "check again": recheck,
    "tokenizer": tokenizer,
    "tokenise, threads": compared(1),
    "tokenise, processes": compared(max(2, len(os.sched_getaffinity(0)))),
    "tokenise": tokenise,
    "train": train,
    "train, two processes": train_together,
    "train, two processes, few pairs": train_on_few,
}

if __name__ == "__main__":
    main()
