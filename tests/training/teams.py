"""A folder in, a report on what teams of processes did there out, as JSON on stdout; `test_distributed.py` starts this.

It is a process of its own so that importing torch is paid for once: it forks before anything has started a thread, and
its children are the processes of a team, with the variables that torchrun would have set.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed.fsdp
import torch.distributed.tensor
from torch.distributed import distributed_c10d

from clearhead.data.batches import Share
from clearhead.data.numbers import spell
from clearhead.errors import ClearheadError
from clearhead.run.settings import RunConfig, resolve
from clearhead.run.training import resume, train
from clearhead.training import logbook
from clearhead.training.distributed import TIMEOUT_VARIABLE, board
from clearhead.training.events import Event, Progress
from clearhead.training.loop import Loop, StepResult

STEPS = 20
TREE: dict[str, Any] = {
    "data": {"kind": "numbers", "largest": 200, "train_size": 60, "validation_size": 9, "test_size": 8},
    "tokenizer": {"kind": "char"},
    "batches": {"max_tokens": 200},
    "model": {
        "dim": 8, "ff_dim": 16, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "max_len": 64, "dropout": 0.0,
    },
    "train": {
        "steps": STEPS, "lr": 0.01, "warmup": 4, "validate_every": STEPS // 2, "log_every": 1, "keep_last": 50,
        # Adam divides by the size of a gradient: where that is zero but for rounding (the bias of keys), it makes
        # mountains of roundings, which differ with the order of sums; a larger eps does not.
        "eps": 1e-4,
    },
    "generation": {"strategy": "greedy"},
}  # fmt: skip

TEXT_STEPS = 8
TEXT_TREE: dict[str, Any] = {
    "tokenizer": {"kind": "char"},
    "batches": {"max_tokens": 90},
    "model": {"kind": "gpt", "dim": 8, "ff_dim": 16, "num_heads": 2, "num_layers": 2, "dropout": 0.0, "max_len": 16},
    "train": {**TREE["train"], "steps": TEXT_STEPS, "validate_every": TEXT_STEPS // 2, "smoothing": 0.0},
}

TEAMS = {1: ((2, "none"), (4, "full")), 4: ((2, "full"), (4, "none"))}
"""Sizes and ways to share the model, by the number of batches in a step."""

POOLS = ((1, 60, ((3, "none"),)), (2, 200, ((2, "full"),)))
"""The same for batch norms, with the size of a batch: in small ones there is nothing to do for some."""

Work = Callable[[], object]


def config(out: Path, **changes: Any) -> RunConfig:
    tree = {key: dict(value) for key, value in TREE.items()}
    for name, value in changes.items():
        section, key = name.split("__")
        tree[section][key] = value
    return resolve({**tree, "out": str(out)})


def team(size: int, work: Work, note: Path) -> list[int]:
    """Let `size` processes work together; their exit codes come back, and what they complained of is in `note`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = [_forked(rank, size, port, work, note) for rank in range(size)]
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def _forked(rank: int, size: int, port: int, work: Work, note: Path) -> int:
    child = os.fork()
    if child:
        return child
    if size > 1:
        os.environ |= {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), TIMEOUT_VARIABLE: "60",
        }  # fmt: skip
    code = 0
    try:
        work()
    except ClearheadError as error:
        code = error.exit_code
        note.with_name(f"{note.name}-{rank}").write_text(str(error))
    except BaseException:
        traceback.print_exc()
        code = 1
    os._exit(code)


def starting(out: Path, stop: Callable[[], bool] = lambda: False, **changes: Any) -> Work:
    """Work that trains from the start."""
    return lambda: recording(out, train(config(out, **changes), stop=stop))


def going_on(out: Path, *assignments: str, stop: Callable[[], bool] = lambda: False) -> Work:
    """Work that goes on from the last checkpoint."""
    return lambda: recording(out, resume(out, list(assignments), stop=stop))


def recording(run: Path, events: Iterator[Event]) -> None:
    """Follow a run, and write down which examples each process learnt from in each step."""
    plain, rank = Loop.step, os.environ.get("RANK", "0")

    def step(self: Loop, shares: Iterator[Share], step: int, total: int) -> StepResult:
        share = next(shares)
        indices = [int(index) for part in share.parts if part.counts for index in part.batch.indices]
        # Not the two steps on a copy of the model by which a run is timed beforehand.
        if total == STEPS:
            with run.with_name(f"{run.name}-seen-{rank}").open("a") as file:
                file.write(json.dumps([step, indices]) + "\n")
        return plain(self, iter([share]), step, total)

    Loop.step = step  # type: ignore[method-assign]
    for _ in events:
        pass


def until(step: int, *, rank: int = 0) -> Callable[[], bool]:
    """A wish to stop after a step, that only one process has."""
    taken = 0

    def wish() -> bool:
        nonlocal taken
        taken += 1
        return taken == step and os.environ.get("RANK", "0") == str(rank)

    return wish


def losses(run: Path) -> dict[int, float]:
    rows = logbook.read_metrics(run / "metrics.jsonl")
    return {row["step"]: row["loss"] for row in rows if row["event"] == "progress"}


def validations(run: Path) -> list[tuple[int, float, int]]:
    rows = logbook.read_metrics(run / "metrics.jsonl")
    return [(row["step"], row["loss"], len(row["samples"])) for row in rows if row["event"] == "validated"]


def distance(one: Path, other: Path) -> float:
    """The largest difference between two checkpoints' weights and optimizer memories; infinite if one lacks any."""
    from clearhead.checkpoint import read_tensors

    largest = 0.0
    for name in ("model.safetensors", "optimizer.safetensors"):
        ours, theirs = read_tensors(one / name), read_tensors(other / name)
        if ours.keys() != theirs.keys():
            return float("inf")
        largest = max(largest, *(float((ours[key] - theirs[key]).abs().max()) for key in ours))
    return largest


def last(run: Path, step: int = STEPS) -> Path:
    return run / "checkpoints" / f"step-{step}"


# What is tried -------------------------------------------------------------------------------------------------------


def equal(root: Path) -> dict[str, Any]:
    """Teams of several sizes beside one process, with steps of one batch, which is split, and of four."""
    report: dict[str, Any] = {}
    for accumulate, teams in TEAMS.items():
        alone = root / f"alone-{accumulate}"
        assert team(1, starting(alone, train__accumulate=accumulate), root / "note") == [0]
        for size, sharding in teams:
            run = root / f"{accumulate}-{size}-{sharding}"
            work = starting(run, train__accumulate=accumulate, train__sharding=sharding)
            report[run.name] = compared(run, alone, team(size, work, root / "note"))
    return report


def sockets(root: Path) -> dict[str, Any]:
    """Two processes that add up in memory and two that may not: the same to the bit."""

    def without_memory() -> None:
        os.environ[board.VARIABLE] = "0"
        starting(root / "sockets")()

    codes = team(2, starting(root / "memory"), root / "note") + team(2, without_memory, root / "note")
    return {"codes": codes, "weights": distance(last(root / "memory"), last(root / "sockets"))}


def norms(root: Path) -> dict[str, Any]:
    """Batch norms, whose statistics are those of a batch however many share it, beside one process."""
    report: dict[str, Any] = {}
    for accumulate, batch_tokens, teams in POOLS:
        changes = {
            "model__norm": "batch",
            "batches__max_tokens": batch_tokens,
            "train__accumulate": accumulate,
            "train__eps": 1e-3,
        }
        alone = root / f"alone-{accumulate}"
        assert team(1, starting(alone, **changes), root / "note") == [0]
        for size, sharding in teams:
            run = root / f"{accumulate}-{size}-{sharding}"
            codes = team(size, starting(run, **changes, train__sharding=sharding), root / "note")
            report[run.name] = compared(run, alone, codes)
    return report


def compared(run: Path, alone: Path, codes: list[int], steps: int = STEPS) -> dict[str, Any]:
    """How far a team's run is from that of one process."""
    mine, theirs = losses(run), losses(alone)
    return {
        "codes": codes,
        "steps": len(mine),
        "loss": max(abs(mine[step] - theirs[step]) for step in theirs),
        "weights": distance(last(run, steps), last(alone, steps)),
        "validated": max(
            abs(ours[1] - other[1]) for ours, other in zip(validations(run), validations(alone), strict=True)
        ),
        "samples": [row[2] for row in validations(run)],
        "model": (run / "model" / "model.safetensors").is_file(),
    }


def texts(root: Path) -> dict[str, Any]:
    """A language model on two processes, whole and in shards, with windows of both kinds, beside one process."""
    (root / "a.txt").write_text(
        "".join(f"{spell(number, 'en')} is {spell(number, 'de')}.\n" for number in range(100, 140)), encoding="utf-8"
    )

    def writing(out: Path, windows: str, sharding: str) -> Work:
        tree = {**TEXT_TREE, "data": {"text": str(root / "a.txt"), "windows": windows}, "out": str(out)}
        tree["train"] = {**TEXT_TREE["train"], "sharding": sharding}
        return lambda: deque(train(resolve(tree)), maxlen=0)

    report: dict[str, Any] = {}
    for windows, ways in (("tiled", ("none", "full")), ("random", ("none",))):
        alone = root / f"alone-{windows}"
        assert team(1, writing(alone, windows, "none"), root / "note") == [0]
        for sharding in ways:
            run = root / f"{windows}-{sharding}"
            codes = team(2, writing(run, windows, sharding), root / "note")
            report[run.name] = compared(run, alone, codes, TEXT_STEPS)
    return report


def relay(root: Path) -> dict[str, Any]:
    """One run on 1, 2, 4 and again 1 process, whole and in shards, cut in the middle of a pass, beside one process."""
    alone, run = root / "alone", root / "relay"
    codes = team(1, starting(alone), root / "note")
    codes += team(1, starting(run, until(3)), root / "note")
    for size, steps, sharding in ((2, 5, "full"), (4, 7, "none"), (1, 99, "full")):
        wish = until(steps, rank=size - 1)
        codes += team(size, going_on(run, f"train.sharding={sharding}", stop=wish), root / "note")
    mine, theirs = losses(run), losses(alone)
    started = [row for row in logbook.read_metrics(run / "metrics.jsonl") if row["event"] == "started"]
    return {
        "codes": codes,
        "sizes": [row["processes"] for row in started],
        "resumed at": [row["step"] for row in started],
        "loss": max(abs(mine[step] - theirs[step]) for step in theirs),
        "weights": distance(last(run), last(alone)),
        "seen": seen(run),
        "expected": seen(alone),
    }


def seen(run: Path) -> dict[int, list[int]]:
    """The examples of each step, over all processes."""
    steps: dict[int, list[int]] = {}
    for path in run.parent.glob(f"{run.name}-seen-*"):
        for line in path.read_text().splitlines():
            step, indices = json.loads(line)
            steps.setdefault(step, []).extend(indices)
    return {step: sorted(indices) for step, indices in sorted(steps.items())}


def resumed(root: Path) -> dict[str, Any]:
    """Teams with dropout, cut and resumed on as many processes, beside uncut ones."""
    report: dict[str, Any] = {}
    for size, sharding, norm in ((3, "none", "layer"), (2, "full", "batch")):
        whole, cut = root / f"whole-{size}-{sharding}-{norm}", root / f"cut-{size}-{sharding}-{norm}"
        changes = {
            "model__dropout": 0.3, "train__accumulate": 2, "train__sharding": sharding, "model__norm": norm,
        }  # fmt: skip
        codes = team(size, starting(whole, **changes), root / "note")
        codes += team(size, starting(cut, until(7), **changes), root / "note")
        codes += team(size, going_on(cut), root / "note")
        report[f"{size}-{sharding}-{norm}"] = {
            "codes": codes,
            "losses": losses(whole) == losses(cut),
            "weights": distance(last(whole), last(cut)),
        }
    return report


def mistakes(root: Path) -> dict[str, Any]:
    """What goes wrong on one process, or on all, and what each of them says."""

    def told(name: str, size: int, work: Work) -> dict[str, Any]:
        codes = team(size, work, root / name)
        words = [(root / f"{name}-{rank}") for rank in range(size)]
        return {"codes": codes, "words": [path.read_text() if path.exists() else "" for path in words]}

    (root / "taken").mkdir()
    (root / "taken" / "precious").touch()

    def diverge() -> None:
        plain = Loop.step

        def step(self: Loop, shares: Iterator[Share], step: int, total: int) -> StepResult:
            if step == 3 and self.team.rank == 1:
                with torch.no_grad():
                    self.model.decoder.blocks[0].feedforward.outer.bias[0] = float("nan")  # type: ignore[index,union-attr]
            return plain(self, shares, step, total)

        Loop.step = step  # type: ignore[method-assign]
        starting(root / "diverged")()

    def vanish() -> None:
        for event in train(config(root / "vanished")):
            if isinstance(event, Progress) and event.step == 3 and os.environ["RANK"] == "1":
                os._exit(9)

    def differ() -> None:
        starting(root / "differing", train__lr=0.01 * (1 + int(os.environ["RANK"])))()

    def miscount() -> None:
        os.environ["WORLD_SIZE"] = str(2 + int(os.environ["RANK"]))
        os.environ[TIMEOUT_VARIABLE] = "3"
        starting(root / "miscounted")()

    return {
        "overwrite": told("overwrite", 2, starting(root / "taken")),
        "diverge": told("diverge", 2, diverge),
        "vanish": told("vanish", 2, vanish),
        "differ": told("differ", 2, differ),
        "miscount": told("miscount", 2, miscount),
        "bad shape": told("shape", 2, starting(root / "shape", model__num_heads=3)),
    }


def refuse(*arguments: object) -> None:
    raise AssertionError("something was to be pickled and sent to another process")


def main(root: Path, names: list[str]) -> dict[str, Any]:
    torch.set_num_threads(1)
    assert hasattr(distributed_c10d, "_object_to_tensor"), "what torch turns objects into bytes with"
    distributed_c10d._object_to_tensor = refuse
    logbook.draw_curve = lambda metrics, picture: None
    # These models are so small that all of them would go through sockets, or at once.
    board.LEAST_BYTES, board.PIECE_BYTES = 1, 512
    trials = (equal, sockets, relay, norms, resumed, texts, mistakes)
    tried = {trial.__name__: trial for trial in trials}
    report = {}
    for name in names or tried:
        (root / name).mkdir()
        report[name] = tried[name](root / name)
    return report


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2:])))  # noqa: T201
