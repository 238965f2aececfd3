"""The mean of checkpoints as a model directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from clearhead.checkpoint import all_steps, best_first, load_model, model_tensors, read_tensors
from clearhead.errors import DataError, MissingInputError, StorageError, UsageError, WouldOverwriteError
from clearhead.run.averaging import average_run
from clearhead.run.using import load
from clearhead.training.averaging import average

pytestmark = pytest.mark.usefixtures("unchecked")


def test_the_mean_is_the_mean_and_keeps_its_type() -> None:
    states = [
        {"w": torch.full((2,), float(value)), "b": torch.tensor([value], dtype=torch.bfloat16)} for value in (1, 3)
    ]
    mean = average(states)
    assert mean["w"].tolist() == [2.0, 2.0]
    assert (mean["b"].item(), mean["b"].dtype) == (2.0, torch.bfloat16)


def test_the_mean_of_one_is_itself_bit_for_bit() -> None:
    state = {"w": torch.randn(100)}
    assert torch.equal(average([state])["w"], state["w"])


@pytest.mark.parametrize("which", ["last", "best"])
def test_the_last_or_the_best_checkpoints_are_averaged(trained: Path, tmp_path: Path, which: str) -> None:
    directory = trained / "checkpoints"
    paths = all_steps(directory)[-2:] if which == "last" else best_first(directory)[:2]
    names = average_run(trained, tmp_path / "mean", **{which: 2})
    assert names == [path.name for path in paths]
    mean = model_tensors(load_model(tmp_path / "mean").model)
    one, other = (read_tensors(path / "model.safetensors") for path in paths)
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, (one[name] + other[name]) / 2)
    card = (tmp_path / "mean" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: clearhead")
    assert card.endswith(f"The weights are the mean of {', '.join(names)}.\n")
    assert (tmp_path / "mean" / "training_config.toml").read_text() == (trained / "config.toml").read_text()
    assert isinstance(load(tmp_path / "mean").translate("eins"), str)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "say which checkpoints to average: --last N or --best N"),
        ({"last": 2, "best": 2}, "say which checkpoints to average: --last N or --best N"),
        ({"last": 0}, "cannot average 0 checkpoints: say 1 or more"),
        ({"best": -3}, "cannot average -3 checkpoints: say 1 or more"),
    ],
)
def test_what_makes_no_sense_is_a_mistake_of_use(
    trained: Path, tmp_path: Path, asked: dict[str, int], said: str
) -> None:
    with pytest.raises(UsageError) as error:
        average_run(trained, tmp_path / "mean", **asked)
    assert str(error.value) == said
    assert not (tmp_path / "mean").exists()


def test_more_than_there_are_cannot_be_averaged(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        average_run(trained, tmp_path / "mean", last=9)
    assert str(error.value) == f"{trained} has 3 such checkpoints, not 9: train with a larger train.keep_last"


def test_nothing_is_overwritten(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(WouldOverwriteError) as error:
        average_run(trained, tmp_path, last=2)
    assert str(error.value) == f"{tmp_path} exists: choose another --out"
    assert error.value.exit_code == 73


def test_a_damaged_checkpoint_is_not_averaged(trained: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy, symlinks=True)
    weights = all_steps(copy / "checkpoints")[-1] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(StorageError, match=r"model\.safetensors is damaged"):
        average_run(copy, tmp_path / "mean", last=2)
    assert not (tmp_path / "mean").exists()


def test_a_run_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError):
        average_run(tmp_path / "nowhere", tmp_path / "mean", last=2)
