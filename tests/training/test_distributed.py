"""Teams of processes: they learn what one process would, in any number, and fail together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from clearhead.training.distributed import SOLO, find_place, joining

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
CLOSE = 1e-5


def report_of(folder: Path, *names: str) -> dict[str, Any]:
    script = Path(__file__).with_name("teams.py")
    command = [sys.executable, str(script), str(folder), *names]
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    environment |= {"CLEARHEAD_CACHE": str(folder / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What all teams did: one process imports torch once for all of them."""
    return report_of(tmp_path_factory.mktemp("teams"))


TEAMS = ("1-2-none", "1-4-full", "4-2-full", "4-4-none")
"""Batches in a step, processes, sharding: each with each."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", TEAMS)
def test_a_team_learns_what_one_process_would(report: dict[str, Any], name: str) -> None:
    """Split batches (one a step) and whole ones (four a step), whole models and models in shards."""
    found = report["equal"][name]
    assert set(found["codes"]) == {0}
    assert found["steps"] == 20
    assert found["loss"] < CLOSE
    assert found["weights"] < CLOSE
    assert found["validated"] < CLOSE
    assert found["samples"] == [3, 3]
    assert found["model"]


def test_gradients_are_added_up_in_memory_as_through_sockets(report: dict[str, Any]) -> None:
    assert report["sockets"] == {"codes": [0, 0, 0, 0], "weights": 0.0}


@pytest.mark.parametrize("name", ("1-3-none", "2-2-full"))
def test_batch_norms_have_the_statistics_of_the_batch_on_however_many_processes(
    report: dict[str, Any], name: str
) -> None:
    """Of batches that are split, whole ones that others have, and where some of the team have nothing to do."""
    found = report["norms"][name]
    assert set(found["codes"]) == {0}
    assert found["loss"] < CLOSE
    assert found["weights"] < CLOSE
    assert found["validated"] < CLOSE


@pytest.mark.parametrize("name", ("tiled-none", "tiled-full", "random-none"))
def test_two_processes_train_a_language_model_as_one_would(report: dict[str, Any], name: str) -> None:
    found = report["texts"][name]
    assert found["codes"] == [0, 0]
    assert found["steps"] == 8
    assert found["loss"] < CLOSE
    assert found["weights"] < CLOSE
    assert found["validated"] < CLOSE
    assert found["samples"] == [3, 3]
    assert found["model"]


def test_a_run_may_go_on_with_more_or_fewer_processes(report: dict[str, Any]) -> None:
    found = report["relay"]
    assert set(found["codes"]) == {0}
    assert found["sizes"] == [1, 2, 4, 1]
    assert found["resumed at"] == [0, 3, 8, 15], "the wish of the last process stops them all"
    assert found["loss"] < CLOSE
    assert found["weights"] < CLOSE
    assert found["seen"] == found["expected"], "each step learnt from the same examples, on however many processes"
    first_pass = [index for indices in found["seen"].values() for index in indices][:60]
    assert sorted(first_pass) == list(range(60)), "each example once"


def test_a_resumed_team_equals_an_unbroken_one_bit_for_bit(report: dict[str, Any]) -> None:
    assert len(report["resumed"]) == 2
    for found in report["resumed"].values():
        assert set(found["codes"]) == {0}
        assert found["losses"] is True
        assert found["weights"] == 0.0


MISTAKES = {
    "overwrite": ([73, 73], ["is not empty: go on with --resume", "is not empty: go on with --resume"]),
    "diverge": ([1, 1], ["step 3: the loss is nan (pair ", "step 3: the loss is nan (pair "]),
    "vanish": ([69, 9], ["rank 0 of 2 has lost the others: one of them has ended, or the network is down", ""]),
    "differ": ([78, 78], ["rank 1: here train.lr is 0.02, and on rank 0 0.01: start", "here train.lr is 0.02, and"]),
    "miscount": ([69, 78], ["1 of 2 processes came", "rank 1 was told of 3 processes and another one of 2"]),
    "bad shape": ([78, 78], ["cannot be cut into 3 heads", "cannot be cut into 3 heads"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_team_fails_together_and_says_why(report: dict[str, Any], name: str) -> None:
    codes, words = MISTAKES[name]
    found = report["mistakes"][name]
    assert found["codes"] == codes
    for said, expected in zip(found["words"], words, strict=True):
        assert expected in said


def test_a_process_alone_is_a_team_of_one_that_asks_nobody() -> None:
    assert find_place({"HOME": "/root"}) is None
    assert SOLO.leads and SOLO.leads_host and SOLO.is_solo
    assert SOLO.sum(1.5, 2.0) == (1.5, 2.0)
    assert SOLO.any(True) and not SOLO.any(False)
    assert SOLO.tell({"a": 1}) == {"a": 1}
    assert SOLO.noted("begun") is None
    with pytest.raises(KeyError), SOLO.agreement():
        raise KeyError


def attend(store: Any, size: int) -> set[str | None]:
    """What all processes of a team call their meeting."""
    ranks = [joining._invite(store, size), *(joining._come(store, rank, size) for rank in range(1, size))]
    names: set[str | None] = set()
    while ranks:
        # The last first, so that nobody finds the others where he wants them.
        for rank in reversed(ranks):
            if (attendance := next(rank)).meeting is not None:
                names.add(attendance.meeting)
                ranks.remove(rank)
    return names


@pytest.mark.parametrize("size", [1, 2, 5])
def test_processes_that_meet_again_at_one_store_are_not_taken_for_the_earlier_ones(size: int) -> None:
    store = dist.HashStore()
    (first,), (second,) = attend(store, size), attend(store, size)
    assert None not in (first, second) and first != second
    # As many as were there before, and one whom nobody has replaced.
    waiting = joining._invite(store, size + 1)
    for _ in range(3):
        assert next(waiting) == (1, None)


def test_whoever_waits_tells_how_many_came() -> None:
    store = dist.HashStore()
    two, one = joining._come(store, 2, 4), joining._come(store, 1, 4)
    assert [next(two), next(one), next(two)] == [(1, None), (2, None), (2, None)]
    first = joining._invite(store, 4)
    assert [next(first), next(one), next(first), next(two)] == [(1, None), (2, None), (2, None), (3, None)]
