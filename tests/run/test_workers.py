"""Several processes against one: the same results, and nobody left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.data.numbers import spell
from clearhead.errors import DataError, DivergedError, UnavailableError
from clearhead.run import translating, workers
from clearhead.run.translating import LoadedTranslator
from clearhead.run.using import load
from clearhead.run.workers import Crew, can_fork

pytestmark = [
    pytest.mark.usefixtures("unchecked"),
    pytest.mark.skipif(not can_fork(), reason="workers are forks"),
]
TEXTS = [spell(number, "de") for number in range(1, 120)] + ["", "  "]


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


@pytest.fixture(scope="module")
def translator(trained: Path) -> LoadedTranslator:
    return load(trained)


# The crew ------------------------------------------------------------------------------------------------------------


def test_every_job_is_done_once_and_comes_back_under_its_number() -> None:
    with Crew(lambda job: [job * 2, os.getpid()], 3) as crew:
        for _ in range(2):
            found = dict(crew.do(range(50)))
            assert {number: result[0] for number, result in found.items()} == {n: 2 * n for n in range(50)}
            assert os.getpid() not in {result[1] for result in found.values()}
        assert list(crew.do([])) == []


def test_workers_use_one_thread_and_the_starter_keeps_its_own() -> None:
    before = torch.get_num_threads()
    with Crew(lambda job: torch.get_num_threads(), 2) as crew:
        assert set(dict(crew.do(range(4))).values()) == {1}
    assert torch.get_num_threads() == before


def test_numbers_and_text_come_back_to_the_bit() -> None:
    said: list[Any] = ["zwölf \u2028 二", 0.1 + 0.2, -1e-300, True, None]
    with Crew(lambda job: job, 1) as crew:
        assert list(crew.do([said])) == [(0, said)]


def failing(job: Any) -> Any:
    if job == "ours":
        raise DivergedError("the model gives numbers that are not finite")
    if job == "bug":
        raise KeyError("lost")
    if job == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return job


@pytest.mark.parametrize(
    ("job", "kind", "said"),
    [
        ("ours", DivergedError, "the model gives numbers that are not finite"),
        ("bug", RuntimeError, "in a worker process: KeyError: 'lost'"),
        (
            "killed",
            UnavailableError,
            "a worker process ended before its work was done (signal 9): out of memory perhaps; "
            "try again with workers 1",
        ),
    ],
)
def test_what_goes_wrong_in_a_worker_is_one_error_here(job: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as error, Crew(failing, 2) as crew:
        list(crew.do(["fine", job, "fine"]))
    assert str(error.value) == said


def test_a_worker_that_died_idle_is_missed_when_it_is_needed() -> None:
    with Crew(lambda job: job, 1) as crew:
        (worker,) = multiprocessing.active_children()
        worker.kill()
        worker.join()
        with pytest.raises(UnavailableError, match="a worker process ended before its work was done"):
            list(crew.do([1]))


def test_workers_ignore_ctrl_c_and_end_with_the_crew() -> None:
    with Crew(lambda job: time.sleep(job) or "done", 2) as crew:
        pids = [child.pid for child in multiprocessing.active_children()]
        for pid in pids:
            os.kill(pid, signal.SIGINT)
        assert sorted(crew.do([0.05, 0.05])) == [(0, "done"), (1, "done")]
        next(iter(crew.do([0, 600])))
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_workers_end_when_their_starter_is_killed() -> None:
    read, write = os.pipe()
    starter = os.fork()
    if starter == 0:
        Crew(lambda job: job, 2)
        os.write(write, " ".join(str(child.pid) for child in multiprocessing.active_children()).encode())
        time.sleep(600)
        os._exit(1)
    pids = [int(pid) for pid in os.read(read, 100).split()]
    os.kill(starter, signal.SIGKILL)
    os.waitpid(starter, 0)
    deadline = time.monotonic() + 20
    while any(_is_running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(pids) == 2
    assert not any(_is_running(pid) for pid in pids)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_where_forks_are_not_safe_workers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "can_fork", lambda: False)
    with pytest.raises(UnavailableError, match="several worker processes need Linux: leave workers at 1"):
        Crew(lambda job: job, 2)


# Translating ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{"strategy": "greedy"}, {"beam_size": 3, "nbest": 2}, {"strategy": "sample", "seed": 5, "nbest": 2}],
    ids=["greedy", "beam", "sample"],
)
def test_workers_give_the_same_translations_in_the_same_order(
    translator: LoadedTranslator, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(translating, "SMALLEST_SHARE", 100)
    monkeypatch.setattr(translating, "WINDOW", 30)
    config = translator.configured(**options)
    alone = list(translator.stream(TEXTS, config, 1))
    together = list(translator.stream(iter(TEXTS), config, 2))
    assert [[one.text for one in best] for best in together] == [[one.text for one in best] for best in alone]
    scores = [[one.score for best in found for one in best] for found in (together, alone)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_workers_are_hired_only_where_they_pay(translator: LoadedTranslator, monkeypatch: pytest.MonkeyPatch) -> None:
    hired = []

    class Watched(Crew):
        def __init__(self, work: Any, count: int) -> None:
            hired.append(count)
            super().__init__(work, count)

    monkeypatch.setattr(translating, "Crew", Watched)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(translating, "ENOUGH_FOR_WORKERS", 5)
    expected = translator.translate(TEXTS[:5], workers=1)
    assert hired == []
    translator.translate(TEXTS[:4])
    assert hired == []
    assert translator.translate(TEXTS[:5]) == expected
    assert hired == [2]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    translator.translate(TEXTS[:5])
    assert hired == [2], "whoever allows one thread gets one process"


def test_a_reader_who_has_seen_enough_leaves_nobody_behind(translator: LoadedTranslator) -> None:
    stream = translator.stream(TEXTS, translator.configured(), 2)
    next(stream)
    assert len(multiprocessing.active_children()) == 2
    stream.close()
    assert multiprocessing.active_children() == []


def test_a_text_that_cannot_be_translated_is_named_as_ever(translator: LoadedTranslator) -> None:
    longest = translator.model.config.max_len - 1
    with pytest.raises(DataError, match=f"^text 2 has {longest + 1} tokens"):
        translator.translate(["eins", "e" * (longest + 1)], workers=2)


def test_a_model_that_is_not_on_the_cpu_has_no_workers(
    translator: LoadedTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translator, "device", torch.device("meta"))
    with pytest.raises(UnavailableError, match="several workers share a CPU, and this model is on meta: use 1"):
        translator.translate(["eins"], workers=2)
