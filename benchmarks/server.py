"""The server under load, written to RESULTS.md: `python benchmarks/server.py --texts test.de --lines 3`.

Capacity; eight times that from 64 clients; dropped streams (with --writer); SIGTERM under 32 clients, again and again;
a soak. `--overload-seconds 5 --drops 20 --stops 2 --soak-minutes 0.2` is a short form.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from results import record

from clearhead.bench.load import Client, Outcome, Request, drop_streams, flood
from clearhead.data.numbers import spell
from clearhead.run.built_in import default_model

Row = tuple[str, str]
EVERY = 5
"""Seconds from one look at the server's memory to the next."""
CONNECTIONS = 16
"""Of each client under overload: one that waits for each answer before it asks again cannot ask for too much."""


def main() -> None:
    """Run all of it and write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a translator; the built-in one if none is given")
    parser.add_argument("--writer", type=Path, help="a language model, for dropped streams")
    parser.add_argument(
        "--texts", type=Path, help="texts to translate, one a line; German number words if none is given"
    )
    parser.add_argument("--lines", type=int, default=1, help="how many of them make a request")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--capacity-seconds", type=float, default=10)
    parser.add_argument("--overload-seconds", type=float, default=60)
    parser.add_argument("--drops", type=int, default=200)
    parser.add_argument("--stops", type=int, default=20)
    parser.add_argument("--soak-minutes", type=float, default=10)
    asked = parser.parse_args()
    requests = _requests(asked.texts, asked.lines)
    models = [asked.model or default_model(), *([asked.writer] if asked.writer else [])]
    with serving(models, asked.engine) as (process, address):
        rows: list[Row] = [("engine", asyncio.run(_engine(address)))]
        capacity = asyncio.run(flood(address, requests, clients=16, seconds=asked.capacity_seconds))
        rows += [("requests a second, 16 clients", f"{capacity.rate:.1f}"), ("median time", _median(capacity))]
        rows += _overload(address, requests, capacity, asked.overload_seconds)
        if asked.writer is not None:
            rows += _drops(address, asked.writer.resolve().name, asked.drops)
    rows += _stops(models, asked.engine, requests, asked.stops)
    with serving(models, asked.engine) as (process, address):
        rows += _soak(address, process.pid, requests, 0.7 * capacity.rate, 60 * asked.soak_minutes)
    command = f"python benchmarks/server.py{_flags(asked, parser)}"
    record("The server under load", command, ("what", "figure"), rows)
    for row in rows:
        print(*row, sep="  ")


def _overload(address: str, requests: Sequence[Request], capacity: Outcome, seconds: float) -> list[Row]:
    lines = 64 * CONNECTIONS
    found = asyncio.run(flood(address, requests, clients=lines, seconds=seconds, rate=8 * capacity.rate))
    answers = ", ".join(f"{count:,} × {status}" for status, count in sorted(found.statuses.items()))
    waits = f"{_longest(found.times)}, {_longest(found.refused_times)}"
    came = found.statuses.total() / seconds
    return [
        (f"eight times that for {seconds:g} s from 64 clients, {CONNECTIONS} connections each: answers", answers),
        ("the same: requests a second that came", f"{came:.0f}, {came / capacity.rate:.1f} × the capacity"),
        ("the same: connections lost, refusals without Retry-After", f"{len(found.lost)}, {found.without_advice}"),
        ("the same: longest wait of the accepted, of the refused", waits),
    ]


def _drops(address: str, model: str, count: int) -> list[Row]:
    stream = Request("/v1/completions", {"model": model, "prompt": "to be", "max_tokens": 1000, "stream": True})
    asyncio.run(drop_streams(address, stream, count))
    started = time.perf_counter()
    short = Request("/v1/completions", {"model": model, "prompt": "to be", "max_tokens": 1})

    async def ask() -> int:
        async with Client(address) as client:
            return (await client.ask(short))[0]

    status = asyncio.run(ask())
    return [
        (f"{count} dropped streams, then the next request", f"{status} after {time.perf_counter() - started:.2f} s")
    ]


def _stops(models: Sequence[Path], engine: str, requests: Sequence[Request], count: int) -> list[Row]:
    lost, answered, longest, codes = 0, 0, 0.0, set()
    chance = random.Random(1)
    for _ in range(count):
        with serving(models, engine) as (process, address):
            told = threading.Event()
            at: list[float] = []

            def tell(
                process: subprocess.Popen[str] = process, told: threading.Event = told, at: list[float] = at
            ) -> None:
                time.sleep(chance.uniform(0.5, 1.5))
                told.set()
                at.append(time.perf_counter())
                process.send_signal(signal.SIGTERM)

            teller = threading.Thread(target=tell)
            teller.start()
            found = asyncio.run(flood(address, requests, clients=32, seconds=60, until=told.is_set))
            codes.add(process.wait(60))
            longest = max(longest, time.perf_counter() - at[0])
            teller.join()
            lost, answered = lost + len(found.lost), answered + found.statuses.total()
    return [
        (f"SIGTERM under 32 clients, {count} times: answered, lost", f"{answered:,}, {lost}"),
        ("the same: longest time to the end, exit codes", f"{longest:.1f} s, {sorted(codes)}"),
    ]


def _soak(address: str, process: int, requests: Sequence[Request], rate: float, seconds: float) -> list[Row]:
    memory: list[float] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(EVERY):
            memory.append(_memory(process))

    asyncio.run(flood(address, requests, clients=16, seconds=min(20, seconds), rate=rate))
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        found = asyncio.run(flood(address, requests, clients=32, seconds=seconds, rate=rate))
    finally:
        done.set()
        watcher.join()
    wrong = found.statuses.total() - found.statuses[200] + len(found.lost)
    return [
        (f"{seconds / 60:g} minutes at 70 %: answered, anything else", f"{found.statuses[200]:,}, {wrong}"),
        ("the same: median time, longest", f"{_median(found)}, {_longest(found.times)}"),
        (f"the same: memory in MB, the median of each {_part(memory) * EVERY} s", _series(memory)),
    ]


def _part(memory: Sequence[float]) -> int:
    """How many looks at the memory a tenth of the soak is."""
    return max(1, len(memory) // 10)


def _series(memory: Sequence[float]) -> str:
    """The memory as it went, in ten parts; what is over at the end is left out."""
    size = _part(memory)
    parts = [memory[start : start + size] for start in range(0, len(memory) - size + 1, size)]
    return ", ".join(f"{statistics.median(part):.0f}" for part in parts) or "–"


@contextmanager
def serving(models: Sequence[Path], engine: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server of some models, and its address; it is told to stop at the end."""
    command = [sys.executable, "-m", "clearhead", "serve", *map(str, models)]
    command += ["--port", "0", "--rate", "0", "--engine", engine]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
    assert process.stderr is not None
    address = None
    for line in process.stderr:
        if found := re.search(r"serving on (http://\S+)", line):
            address = found[1]
            break
    if address is None:
        raise SystemExit("the server did not start")
    # What it says later is thrown away, so that it never waits for a reader.
    reader = threading.Thread(target=process.stderr.read, daemon=True)
    reader.start()
    try:
        yield process, address
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)


def _requests(texts: Path | None, together: int) -> list[Request]:
    lines = (
        texts.read_text(encoding="utf-8").split("\n")[:1000]
        if texts
        else [spell(number, "de") for number in range(1, 999)]
    )
    lines = [line for line in lines if line]
    asked = [" ".join(lines[first : first + together]) for first in range(0, len(lines), together)]
    return [Request("/translate", {"q": text, "source": "de", "target": "en"}) for text in asked]


def _memory(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    found = re.search(r"VmRSS:\s+(\d+)", status)
    return int(found[1]) / 1024 if found else 0.0


def _median(found: Outcome) -> str:
    return f"{1000 * sorted(found.times)[len(found.times) // 2]:.0f} ms" if found.times else "–"


def _longest(times: Sequence[float]) -> str:
    return f"{max(times):.2f} s" if times else "–"


async def _engine(address: str) -> str:
    """What computes the translations."""
    async with Client(address) as client:
        _, _, body = await client.ask(Request("/models"))
    return str(json.loads(body)["models"][0]["engine"])


def _flags(asked: argparse.Namespace, parser: argparse.ArgumentParser) -> str:
    given = {name: value for name, value in vars(asked).items() if value != parser.get_default(name)}
    return "".join(f" --{name.replace('_', '-')} {value}" for name, value in given.items())


if __name__ == "__main__":
    main()
