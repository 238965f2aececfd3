"""Several processes write what one would have written, and leave nothing behind when they cannot."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearhead.data import crew
from clearhead.data.corpus import tokenise
from clearhead.data.crew import MOST_WORKERS, WORTH_A_CREW, Pair, encode_chunk, encoded, num_workers
from clearhead.errors import ClearheadError, DataError
from clearhead.text import TOKENIZERS, TokenizerConfig, TokenizerPair

PAIRS: list[Pair] = [
    (line, f"Satz {line} mit  {'x' * (line % 50)} Wörtern", f"我 sentence {line % 7} </s>\u00a0with words ")
    for line in range(1, 400)
]


def trained(kind: str = "bpe", joint: bool = True) -> TokenizerPair:
    config = TokenizerConfig(kind=kind, vocab_size=300, min_freq=1, joint=joint)
    return TokenizerPair.train(config, [pair[1] for pair in PAIRS[:200]], [pair[2] for pair in PAIRS[:200]])


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize(("kind", "joint"), [("bpe", True), ("word", False)])
def test_any_number_of_processes_writes_the_same_bytes(kind: str, joint: bool, tmp_path: Path) -> None:
    tokenizers = trained(kind, joint)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clearhead.data.corpus.CHUNK", 16)
        for workers in (1, 2, 3):
            tokenise(PAIRS, tokenizers, tmp_path / str(workers), max_len=60, workers=workers)
    alone = files(tmp_path / "1")
    assert alone == files(tmp_path / "2") == files(tmp_path / "3")
    assert len(alone["line_numbers.bin"]) // 8 > 100


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_tokenizer_handed_over_as_text_encodes_alike(kind: str) -> None:
    tokenizers = trained(kind)
    copy = type(tokenizers.source).from_text(tokenizers.source.as_text())
    assert copy.fingerprint() == tokenizers.source.fingerprint()
    assert encode_chunk(PAIRS, TokenizerPair(copy, copy), 99) == encode_chunk(PAIRS, tokenizers, 99)


def test_a_mistake_in_the_data_is_told_as_if_there_were_no_crew(tmp_path: Path) -> None:
    bad = [*PAIRS, (777, "fine", "a\ud800")]
    with pytest.raises(DataError, match=r"^line 777: text has a lone surrogate U\+D800"):
        tokenise(bad, trained("byte"), tmp_path / "corpus", max_len=99, workers=2)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def crews(monkeypatch: pytest.MonkeyPatch) -> list[crew._Worker]:
    """Every process that is started."""
    started: list[crew._Worker] = []

    class Watched(crew._Worker):
        def __init__(self, orders: bytes) -> None:
            super().__init__(orders)
            started.append(self)

    monkeypatch.setattr(crew, "_Worker", Watched)
    return started


def test_a_process_that_dies_is_one_clear_error_and_leaves_nothing(tmp_path: Path, crews: list[crew._Worker]) -> None:
    def pairs() -> Iterator[Pair]:
        for number in range(10_000_000):
            if number == 40_000:
                crews[1].process.send_signal(signal.SIGKILL)
            yield number + 1, "a b c", "d e f"

    with pytest.raises(ClearheadError) as caught:
        tokenise(pairs(), trained("byte"), tmp_path / "corpus", max_len=99, workers=2)
    assert str(caught.value) == (
        "a process that tokenises was ended by SIGKILL: if memory ran out, set data.workers to a smaller number"
    )
    assert list(tmp_path.iterdir()) == []
    assert [worker.process.returncode for worker in crews] == [-signal.SIGKILL] * 2


def test_a_process_that_cannot_start_says_how_to_go_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ClearheadError, match=r"ended with exit code 1: set data.workers to 1 to go without$"):
        tokenise(PAIRS, trained("byte"), tmp_path / "corpus", max_len=99, workers=2)


def test_a_reader_who_has_seen_enough_ends_the_crew(crews: list[crew._Worker]) -> None:
    with contextlib.closing(encoded(PAIRS, trained("byte"), 99, 2, chunk=10)) as chunks:
        next(chunks)
    assert len(crews) == 2 and all(worker.process.returncode is not None for worker in crews)


INTERRUPTED = """
import sys
from pathlib import Path
from clearhead.data import corpus, crew
from clearhead.text import TokenizerConfig, TokenizerPair

started = crew._Worker.__init__
def start(self, orders):
    started(self, orders)
    print("worker", self.process.pid, flush=True)
crew._Worker.__init__ = start

tokenizers = TokenizerPair.train(TokenizerConfig(kind="byte"), [], [])
pairs = ((line + 1, "source", "target") for line in range(10**9))
told = lambda read: print("read", read, flush=True)
corpus.tokenise(pairs, tokenizers, Path(sys.argv[1]), max_len=100, workers=2, progress=told)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interruption_ends_all_processes_and_leaves_no_corpus(tmp_path: Path, number: signal.Signals) -> None:
    program = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "corpus")]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        workers = [int(process.stdout.readline().split()[1]) for _ in range(2)]
        assert process.stdout.readline().startswith(b"read")
        process.send_signal(number)
        process.stdout.read()
    assert process.returncode == -number
    assert not (tmp_path / "corpus").exists()
    if number == signal.SIGINT:
        assert list(tmp_path.iterdir()) == []
    for worker in workers:
        wait_for_end(worker)


def wait_for_end(worker: int) -> None:
    """A process whose input has ended needs a moment to notice."""
    import time

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.05)
                continue
        return
    raise AssertionError(f"process {worker} has not ended")


def test_small_corpora_are_done_here_and_large_ones_on_the_cores_we_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    assert (num_workers(WORTH_A_CREW - 1), num_workers(WORTH_A_CREW), num_workers(5, 4)) == (1, 3, 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert num_workers(10**9) == MOST_WORKERS
