"""A folder and a count in, a report on as many SIGKILLs out, as JSON on stdout; `test_kill.py` starts this.

It is a process of its own so that importing torch is paid for once: it forks before anything has started a thread, and
its children train, resume and are killed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from clearhead.checkpoint import all_steps, is_whole, load_model
from clearhead.run.settings import RunConfig, resolve
from clearhead.run.training import resume, train
from clearhead.storage import DRAFT
from clearhead.training import logbook
from clearhead.training.events import Event, Started

SAVE_EVERY, STEPS = 2, 300
TREE: dict[str, Any] = {
    "data": {"kind": "numbers", "largest": 200, "train_size": 60, "validation_size": 8, "test_size": 8},
    "tokenizer": {"kind": "char"},
    "batches": {"max_tokens": 300},
    "model": {"dim": 8, "ff_dim": 16, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "max_len": 64},
    "train": {"steps": STEPS, "validate_every": STEPS, "log_every": 1, "save_every": SAVE_EVERY, "keep_last": 2},
    "generation": {"strategy": "greedy"},
}


@dataclass
class Report:
    """What the kills met and what was left after them."""

    kills: int = 0
    resumed: int = 0
    before_the_first_save: int = 0
    in_the_middle_of_a_save: int = 0
    killed_at_the_end: int = 0
    without_model: int = 0
    finished_runs: int = 0
    rubble: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def expect(self, is_so: bool, complaint: str) -> None:
        if not is_so:
            self.complaints.append(f"after kill {self.kills}: {complaint}")


def forked(work: Callable[[], None]) -> int:
    """Start a child; its process id comes back."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def finishes(work: Callable[[], None]) -> bool:
    """Let a child work to its end, and say whether that was a good one."""
    return os.waitpid(forked(work), 0)[1] == 0


def is_killed(work: Callable[[], None], after: float, sign: Callable[[], bool] = lambda: True) -> bool:
    """Kill a child some seconds after a sign; False if it was done before."""
    child = forked(work)
    end: float | None = None
    while end is None or time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0, "a child that nobody killed must end well"
            return False
        end = time.monotonic() + after if end is None and sign() else end
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def events_of(run: Path) -> Iterator[Event]:
    """Go on with a run, or start it: what a person would do after each kill."""
    config: RunConfig = resolve({**TREE, "out": str(run)})
    return resume(run, []) if (run / "config.toml").is_file() else train(config)


def work_on(run: Path) -> None:
    for _ in events_of(run):
        pass


def note_the_start(run: Path, note: Path) -> None:
    """Resume up to the first step, and write down which it is."""
    for event in events_of(run):
        if isinstance(event, Started):
            note.write_text(str(event.step))
            return


def steps_of(run: Path) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in all_steps(run / "checkpoints")]


def told(run: Path) -> dict[int, float]:
    """The loss of each step that the metrics tell of."""
    metrics = run / "metrics.jsonl"
    rows = logbook.read_metrics(metrics) if metrics.exists() else []
    return {row["step"]: row["loss"] for row in rows if row["event"] == "progress"}


def examine(run: Path, highest: int, report: Report) -> int:
    """Check what a kill left; the newest step on disk comes back."""
    checkpoints = run / "checkpoints"
    steps, taken = steps_of(run), max(told(run), default=0)
    newest = max(steps, default=0)
    names = [path.name for path in checkpoints.iterdir()] if checkpoints.is_dir() else []
    report.before_the_first_save += newest == 0
    report.in_the_middle_of_a_save += any(DRAFT in name for name in names)
    for path in all_steps(checkpoints):
        report.expect(is_whole(path), f"{path.name} is not whole")
    report.expect(newest >= highest, f"step {highest} was there and now it is {newest}")
    report.expect(taken - newest <= SAVE_EVERY, f"step {taken} was taken, and the newest checkpoint is {newest}")
    if (checkpoints / "last").is_symlink():
        report.expect((checkpoints / "last").exists(), "the link 'last' leads nowhere")
        load_model(run)
    note = run.with_name("note")
    note.unlink(missing_ok=True)
    resumed = finishes(lambda: note_the_start(run, note)) and int(note.read_text()) == newest
    report.expect(resumed, f"the run did not resume at step {newest}")
    report.resumed += resumed
    return newest


def kill_often(root: Path, wanted: int, pace: float, report: Report, chance: random.Random) -> list[Path]:
    """Kill runs at random moments, from their first to a dozen steps later, until there were enough kills."""
    runs = [root / "run-0"]
    highest = 0
    while report.kills < wanted:
        latest = pace * (2 if report.kills < 4 else 15)
        if is_killed(lambda: work_on(runs[-1]), chance.uniform(0, latest)):
            report.kills += 1
            highest = examine(runs[-1], highest, report)
        else:
            runs.append(root / f"run-{len(runs)}")
            highest = 0
    return runs


def kill_at_the_end(run: Path, times: int, report: Report, chance: random.Random) -> None:
    """Kill a run that has only its model directory left to write, while it does, with an old one there and without."""
    for number in range(times):
        had_model = number % 2 == 0
        if had_model:
            assert finishes(lambda: work_on(run))
        else:
            shutil.rmtree(run / "model", ignore_errors=True)
        before = set(run.glob(f"model{DRAFT}*"))
        is_writing = lambda before=before: bool(set(run.glob(f"model{DRAFT}*")) - before)  # noqa: E731
        delay = chance.uniform(0, 0.02) if number % 4 < 2 else 0.0
        report.killed_at_the_end += is_killed(lambda: work_on(run), delay, is_writing)
        if (run / "model").exists():
            load_model(run / "model")
        else:
            report.without_model += 1
            load_model(run)


def warm_up() -> None:
    """Let torch load what it loads at the first step, so that children need not; no thread may start, for the forks."""
    torch.set_num_threads(1)
    layer = torch.nn.Linear(2, 2)
    layer(torch.ones(1, 2)).sum().backward()
    torch.optim.Adam(layer.parameters(), fused=True).step()
    threads = Path("/proc/self/task")
    assert not threads.is_dir() or len(list(threads.iterdir())) == 1


def main(root: Path, wanted: int, seed: int) -> Report:
    warm_up()
    logbook.draw_curve = lambda metrics, picture: None
    report, chance = Report(), random.Random(seed)
    whole = root / "whole"
    began = time.monotonic()
    assert finishes(lambda: work_on(whole))
    pace = (time.monotonic() - began) / STEPS
    runs = kill_often(root, wanted, pace, report, chance)
    kill_at_the_end(whole, min(16, wanted // 2), report, chance)
    for run in (whole, *runs):
        report.expect(finishes(lambda run=run: work_on(run)), f"{run} did not finish")
        weights = [(path / "model" / "model.safetensors").read_bytes() for path in (whole, run)]
        report.expect(weights[0] == weights[1], f"{run} has other weights than the uninterrupted run")
        report.expect(told(whole) == told(run) and len(told(run)) == STEPS, f"{run} has other losses")
        report.rubble += [path.name for path in run.rglob("*") if ".tmp" in path.name or ".old" in path.name]
        report.finished_runs += 1
    return report


if __name__ == "__main__":
    print(json.dumps(asdict(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))))  # noqa: T201
