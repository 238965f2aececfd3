"""Tensors added up over processes of one host by memory that all of them see."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from clearhead.errors import ConfigError
from clearhead.training.distributed import board
from clearhead.training.distributed.board import MOST_PROCESSES, VARIABLE, Board, is_wanted, looked_at, put_up

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="files that are memory are Linux's")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(board, "FOLDER", tmp_path)
    monkeypatch.setattr(board, "PIECE_BYTES", 64)
    monkeypatch.setattr(board, "LEAST_BYTES", 1024)
    return tmp_path


def there(size: int) -> Path:
    path = put_up(size)
    assert path is not None
    return path


def added_up(tensors: list[Tensor], parts: int = 1) -> Iterator[Tensor]:
    """What each of as many threads, with a view of its own, makes of its tensor, three times in a row."""
    size = len(tensors)
    path, barrier = there(size), threading.Barrier(size, timeout=60)

    def work(rank: int) -> None:
        memory = looked_at(path, size)
        assert memory is not None
        mine = Board(rank, size, memory, lambda: barrier.wait() and None)
        for _ in range(3):
            mine.add_up(tensors[rank], parts)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield from tensors


@pytest.mark.parametrize("size", range(2, MOST_PROCESSES + 1))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (7, 3), (5, 40)])
def test_everybody_has_the_sum(shape: tuple[int, ...], dtype: torch.dtype, size: int) -> None:
    """Tensors of less than a piece, of a piece and some, and of many; three sums in a row are size² times the first."""
    torch.manual_seed(0)
    tensors = [torch.randint(-4, 5, shape).to(dtype) for _ in range(size)]
    wanted = torch.stack(tensors).sum(0) * size**2
    for found in added_up(tensors):
        assert found.dtype == dtype and torch.equal(found, wanted)


def test_everybody_has_the_mean_to_the_same_bits() -> None:
    torch.manual_seed(0)
    tensors = [torch.randn(9, 11) for _ in range(3)]
    wanted = torch.stack(tensors).mean(0)
    first, *others = added_up(tensors, 3)
    torch.testing.assert_close(first, wanted)
    assert all(torch.equal(first, other) for other in others)


def test_it_suits_large_tensors_that_lie_in_one_piece() -> None:
    mine = Board(0, 2, torch.zeros(256, dtype=torch.uint8), lambda: None)
    large = torch.zeros(board.LEAST_BYTES // 4, 2)
    assert mine.suits(large) and mine.suits(large.bfloat16())
    assert not mine.suits(large.t()) and not mine.suits(large[:9]) and not mine.suits(large.long())


def test_only_its_owner_may_look(folder: Path) -> None:
    assert there(2).stat().st_mode & 0o777 == 0o600
    assert [path.parent for path in folder.iterdir()] == [folder]


def test_what_is_no_such_file_is_not_looked_at(folder: Path) -> None:
    path = there(2)
    assert looked_at(path, 2) is not None
    assert looked_at(path, 3) is None
    (folder / "link").symlink_to(path)
    assert looked_at(folder / "link", 2) is None
    assert looked_at(folder / "absent", 2) is None


def test_where_memory_is_short_there_is_none_and_nothing_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert put_up(2) is None
    assert not [*folder.iterdir()]


def test_there_is_none_for_many_processes_or_on_other_systems(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert put_up(MOST_PROCESSES + 1) is None
    monkeypatch.setattr(board, "FOLDER", folder / "absent")
    assert put_up(2) is None


def test_it_can_be_switched_off() -> None:
    assert is_wanted({}) and is_wanted({VARIABLE: "1"}) and not is_wanted({VARIABLE: "0"})
    with pytest.raises(ConfigError, match=f"^{VARIABLE} should be 0 or 1, not 'no'$"):
        is_wanted({VARIABLE: "no"})
